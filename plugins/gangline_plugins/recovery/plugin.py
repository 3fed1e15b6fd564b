"""The plugin: sees which groups have lost members, has places found for them, and keeps the room until all have come.

A gang that loses a member does no work until the member is replaced. Without this plugin its pods are deleted minutes
after their node was lost, others take the room that is left meanwhile, and a gang whose domain has become full waits
beside empty ones for ever. With the plugin:

1. A node is lost that has been not ready for `graceSeconds`, and at once one that is out of service, deleted, or in a
   domain that is marked as down. So is a GPU that its node reports as Unhealthy, and a device of a claim with a taint
   of the effect NoExecute that the claim does not tolerate.
2. For each gang with members there `planning` finds new places in a transaction, for the gang of the highest priority
   first: for the lost members beside the others, or for all of them in another domain.
3. The plugin keeps that room: other pods of the same or a lower priority leave it to the gang.
4. Only then `carrying_out` evicts the other members where the policy or the move wants it and budgets allow it, and
   removes the lost ones. Their controllers create new pods. These come before others of their priority, and find their
   room. `rounds` does these steps in the background.
5. Where no place is found, the gang is tried again, and after `releaseSeconds` its other members are released.

A gang whose replacement finds no room beside the others, for whatever reason its member has gone, takes the same way
from step 2: `pod_group_post_filter` says so.

What is kept is in memory. A scheduler that takes over finds lost members and stranded gangs anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from gangline import (
    SKIP,
    Action,
    CodeColumn,
    EventHint,
    GroupAttempt,
    Handle,
    Membership,
    NodeView,
    PodInfo,
    Progress,
    Reason,
    ScoreColumn,
    Status,
    codes,
    hookimpl,
    on,
    unschedulable,
)
from gangline_plugins.memberships import key_of
from gangline_plugins.recovery.arguments import RecoveryArgs
from gangline_plugins.recovery.lending import Lending
from gangline_plugins.recovery.policies import RecoveryPolicy, policy_of
from gangline_plugins.recovery.rounds import RecoveryRounds
from gangline_plugins.recovery.spares import Spares
from gangline_plugins.recovery.under_way import HAVE_LEFT, UnderWay
from gangline_plugins.recovery.wear import NodeWear

_WAITS = "the gang recovers, and waits until the members that are replaced have left"


class Recovery:
    """Replaces lost members of gangs, or moves the gangs, with the room found and kept before anything is evicted."""

    name = "Recovery"
    args_type = RecoveryArgs
    reasons = (
        Reason("node(s) were spares for gangs that lose members", resolvable=False),
        Reason("node(s) were in a domain that is marked as down", resolvable=False),
    )

    def __init__(self, args: RecoveryArgs, handle: Handle) -> None:
        self._handle = handle
        self._wear = NodeWear(args.penalty_half_life_seconds)
        self._under_way = UnderWay(handle, args.grace_seconds)
        lending = Lending(handle, args.lent_below_priority, args.lent_below_runtime_seconds)
        self._spares = Spares(handle, args.spares, lending)
        self._rounds = RecoveryRounds(args, handle, self._wear, self._under_way, self._spares, lending)
        handle.state.follow_nodes(self._rounds.health)
        handle.state.at_end(self._under_way.end_all)
        handle.run(self._rounds.run)

    # Hooks

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A pod that ends, or a lost node: the last member that others wait for may have left.

        A node that came or has changed may be a spare no more, or be in no domain that is down.
        """
        return (
            on("pods", Action.DELETE, lambda pod, old, new: bool(self._under_way.recovering) or self._spares.any),
            on("pods", Action.UPDATE_OTHER, lambda pod, old, new: bool(self._under_way.recovering)),
            on(HAVE_LEFT.resource, HAVE_LEFT.action),
            on("nodes", Action.ADD | Action.UPDATE, lambda pod, old, new: self._spares.any or self._rounds.down.any),
        )

    @hookimpl
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Hold the new members of a gang that recovers until the old ones have left; they would go beside them."""
        key, lost = (key_of(self._handle, pod) if self._under_way.recovering else ""), self._rounds.health.all
        return unschedulable(_WAITS) if key and self._under_way.are_leaving(key, lost) else None

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter where no spares are kept from the pod, and no domain is down."""
        return None if self._rounds.down.any or self._keeps_spares_from(pod) else SKIP

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """Whether spares are kept from the pod; None without spares."""
        return self._keeps_spares_from(pod) if self._spares.any else None

    @hookimpl
    def identity_all(self, pods: Sequence[PodInfo]) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        return list(map(self._keeps_spares_from, pods)) if self._spares.any else None

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Reject spares, and nodes in domains that are down."""
        kept = self._spares.kept(self._rounds.allowed()) if self._keeps_spares_from(pod) else nodes.whole.full(False)
        down = self._rounds.down.rows() if self._rounds.down.any else nodes.whole.full(False)
        return codes(kept[nodes.index] & ~down[nodes.index], down[nodes.index])

    def _keeps_spares_from(self, pod: PodInfo) -> bool:
        return self._spares.any and not self._spares.are_lent_to(pod) and not self._has_lost_members(pod)

    def _has_lost_members(self, pod: PodInfo) -> bool:
        """Whether the pod's gang recovers, or runs in part."""
        membership = self._handle.group_of(pod)
        if not isinstance(membership, Membership):
            return False
        group = membership.group
        is_partial = Progress.of(group, len(self._handle.members(group.key))).is_partial
        return is_partial or group.key in self._under_way.recovering

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status | None:
        """Remember a gang that runs in part and has no room for the rest beside it: it may have to move."""
        group = attempt.group
        if not attempt.placed or policy_of(self._handle, attempt.first) is RecoveryPolicy.NONE:
            return None
        under_way = self._under_way.recovering.get(group.key)
        if under_way is not None and under_way.is_removing:
            return unschedulable("recovery: members of the gang are being removed")
        if under_way is not None and under_way.rooms:
            self._rounds.failed_in_room(group)
            return unschedulable("recovery: room is kept for the gang, and it is tried again")
        self._rounds.await_room(group)
        return unschedulable(
            f"recovery: {len(attempt.placed)} members have nodes, and the gang moves as a whole if it finds room"
        )

    @hookimpl
    def pod_group_key(self, attempt: GroupAttempt) -> Hashable:
        """Only a gang of which some members run is remembered."""
        return None if attempt.placed else ()

    @hookimpl
    def pod_group_can_help(self, attempt: GroupAttempt) -> bool:
        """False for a gang of which no member runs."""
        return bool(attempt.placed)

    @hookimpl
    def pre_score(self) -> Status | None:
        """Skip the score while no node has failed lately."""
        return None if self._wear.any(self._handle.clock.monotonic()) else SKIP

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        """100, and less for nodes that failed lately: the more often and the later, the less."""
        return self._wear.scores(nodes, self._handle.clock.monotonic())

    @hookimpl
    def reserve(self, pod: PodInfo, node: str) -> None:
        """A member has a node: the room that was kept for it is its own now."""
        if self._under_way.recovering:
            self._under_way.comes(key_of(self._handle, pod), pod, node)

    @hookimpl
    def reserve_all(self) -> Status | None:
        """Nothing is to be done while no gang recovers."""
        return None if self._under_way.recovering else SKIP

    @hookimpl
    def unreserve(self, pod: PodInfo) -> None:
        """The member was not bound: keep its room again."""
        if self._under_way.recovering:
            self._under_way.comes_not(key_of(self._handle, pod), pod)

    @hookimpl
    async def post_bind(self, pod: PodInfo) -> None:
        """A member is bound: if nobody else is to come, its gang has recovered."""
        key = key_of(self._handle, pod) if self._under_way.recovering else ""
        if key:
            self._rounds.arrived(key, pod)
