"""The plugin: sees which groups have lost members, has places found for them, and keeps the room until all have come.

A gang that loses a member does no work until the member is replaced. Without this plugin its pods are deleted minutes
after their node was lost, others take the room that is left meanwhile, and a gang whose domain has become full waits
beside empty ones for ever. With the plugin:

1. A node that is not ready, out of service or deleted, and a GPU that its node reports as Unhealthy, is lost after
   `graceSeconds`.
2. For each gang with members there `planning` finds new places in a transaction, for the gang of the highest priority
   first: for the lost members beside the others, or for all of them in another domain.
3. The plugin keeps that room: other pods of the same or a lower priority leave it to the gang.
4. Only then `carrying_out` removes the lost members, and the others where the policy or the move wants it. Their
   controllers create new pods. These come before others of their priority, and find their room.
5. Where no place is found, the gang is tried again, and after `releaseSeconds` its other members are released.

A gang whose replacement finds no room beside the others, for whatever reason its member has gone, takes the same way
from step 2: `pod_group_post_filter` says so.

What is kept is in memory. A scheduler that takes over finds lost members and stranded gangs anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from functools import partial

from gangline import (
    GANG_SECONDS,
    SKIP,
    Action,
    BoolColumn,
    ClusterEvent,
    CodeColumn,
    Deadline,
    EventHint,
    GanglineError,
    GroupAttempt,
    Handle,
    Membership,
    NodeView,
    PodGroup,
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
from gangline_plugins.preemption.helping import is_helped
from gangline_plugins.recovery.arguments import RecoveryArgs
from gangline_plugins.recovery.carrying_out import Removing
from gangline_plugins.recovery.losses import Affected, DeviceHealth, Loss, NodeHealth, affected, pods_on
from gangline_plugins.recovery.planning import Places, RecoveryPlan, find_recovery
from gangline_plugins.recovery.policies import RecoveryPolicy, policy_of
from gangline_plugins.recovery.spares import Spares
from gangline_plugins.recovery.telling import RecoveryEnd, RecoveryNotices
from gangline_plugins.recovery.under_way import Stranded, UnderWay
from gangline_plugins.recovery.wear import NodeWear

log = logging.getLogger(__name__)
_AT_ONCE_SECONDS = 0.05
"""CPU time for the plans of one round; the other groups follow in the next, so that the loop is not held."""
_NEXT_ROUND = 0.01
_LOOK = 30.0
"""While nodes are lost, seconds until it is looked for pods that have come to them since."""
_HAVE_LEFT = "gangline.dev/recoveries"
"""The name under which the plugin is told that members of a moving gang have left."""
_MOVING = "the gang moves to other nodes, and waits until its members have left the old ones"


class Recovery:
    """Replaces lost members of gangs, or moves the gangs, with the room found and kept before anything is evicted."""

    name = "Recovery"
    args_type = RecoveryArgs
    reasons = (Reason("node(s) were spares for gangs that lose members", resolvable=False),)

    def __init__(self, args: RecoveryArgs, handle: Handle) -> None:
        self._args = args
        self._handle = handle
        self._changed = asyncio.Event()
        self._wear = NodeWear(args.penalty_half_life_seconds)
        self._health = NodeHealth(handle.clock.monotonic, self._changed.set, self._wear)
        self._devices = DeviceHealth(handle, self._changed.set, self._wear)
        self._lost: list[tuple[PodInfo, Loss]] = []
        """The pods on lost nodes and devices, within the grace too, as of the last round."""
        self._under_way = UnderWay(handle)
        self._spares = Spares(handle, args.spares, args.lent_below_priority)
        self._removing = Removing(handle, args.room_seconds)
        self._notices = RecoveryNotices(handle)
        self._forced: set[str] = set()
        """The UIDs of pods that were being removed when their node died, and were deleted once more."""
        self._is_blind = False
        self._is_cut_short = False
        handle.state.follow_nodes(self._health)
        handle.state.at_end(self._under_way.end_all)
        handle.run(self._work)

    # Hooks

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A deleted pod, or a lost node: the last member of a moving gang may have left its node."""
        return (
            on("pods", Action.DELETE, lambda pod, old, new: bool(self._under_way.recovering) or self._spares.any),
            on(_HAVE_LEFT, Action.UPDATE_OTHER),
            on("nodes", Action.ADD | Action.UPDATE, lambda pod, old, new: self._spares.any),
        )

    @hookimpl
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Hold the members of a gang that moves until the old ones have left: they would be placed beside those."""
        key = self._key_of(pod) if self._under_way.recovering else ""
        return unschedulable(_MOVING) if key and self._under_way.are_leaving(key, self._health.all) else None

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter where no spares are kept from the pod."""
        if not self._spares.any or self._spares.are_lent_to(pod) or self._has_lost_members(pod):
            return SKIP
        return None

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        """Reject spares."""
        return codes(self._spares.kept(self._allowed())[nodes.index])

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
        group, now = attempt.group, self._handle.clock.monotonic()
        if not attempt.placed or policy_of(self._handle, group, attempt.first) is RecoveryPolicy.NONE:
            return None
        if any(pod.terminating for pod in attempt.placed):
            return unschedulable("recovery: members of the gang are being deleted")
        if group.key in self._under_way.recovering:
            self._under_way.end(group.key)  # the room that was kept does not serve
        if group.key not in self._under_way.stranded:
            self._under_way.strand(group, now, now, self._args.grace_seconds)
            self._changed.set()
        return unschedulable(
            f"recovery: {len(attempt.placed)} members have nodes, and the gang moves as a whole if it finds room"
        )

    @hookimpl
    def pre_score(self) -> Status | None:
        """Skip the score while no node has failed lately."""
        return None if self._wear.any else SKIP

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        """100, and less for nodes that were lost lately: the more often and the later, the less."""
        return self._wear.scores(nodes, self._handle.clock.monotonic())

    @hookimpl
    def reserve(self, pod: PodInfo, node: str) -> None:
        """A member has a node: the room that was kept for it is its own now."""
        if self._under_way.recovering:
            self._under_way.comes(self._key_of(pod), pod, node)

    @hookimpl
    def unreserve(self, pod: PodInfo) -> None:
        """The member was not bound: keep its room again."""
        if self._under_way.recovering:
            self._under_way.comes_not(self._key_of(pod), pod)

    @hookimpl
    async def post_bind(self, pod: PodInfo) -> None:
        """A member is bound: if nobody else is to come, its gang has recovered."""
        key = self._key_of(pod) if self._under_way.recovering else ""
        found = self._under_way.arrived(key, pod) if key else None
        if found is not None:
            seconds = self._handle.clock.monotonic() - found.since
            note = f"all lost members have nodes again, after {seconds:.1f} s"
            self._notices.ended(found.group, [pod], RecoveryEnd.RECOVERED, note, seconds)

    def _key_of(self, pod: PodInfo) -> str:
        membership = self._handle.group_of(pod)
        return membership.group.key if isinstance(membership, Membership) else ""

    # In the background

    async def _work(self) -> None:
        try:
            while True:
                self._changed.clear()
                self._round(self._handle.clock.monotonic())
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause(self._handle.clock.monotonic())):
                        await self._changed.wait()
        finally:
            self._under_way.end_all()

    def _pause(self, now: float) -> float | None:
        """Seconds until something has to be looked at again; None if nothing has to."""
        grace = self._args.grace_seconds
        ends = [loss.since + grace for _, loss in self._lost if loss.since + grace > now]
        times = [*ends, *self._under_way.moments()]
        if self._is_cut_short:
            times.append(now + _NEXT_ROUND)
        if self._health.all:
            times.append(now + _LOOK)
        return max(0.0, min(times) - now) if times else None

    def _round(self, now: float) -> None:
        for late in self._under_way.late(now):
            self._under_way.end(late.group.key)
            if late.places:
                note = f"{len(late.places)} members did not come in time; no more room is kept for them"
                self._notices.ended(late.group, [late.first], RecoveryEnd.GIVEN_UP, note, now - late.since)
        on_nodes = pods_on(self._handle, self._seen())
        self._health.forget(set(self._health.all) - {loss.node for _, loss in on_nodes})
        self._lost = [*on_nodes, *self._devices.losses(now)]
        self._let_go()
        due = [(pod, loss) for pod, loss in self._lost if now >= loss.since + self._args.grace_seconds]
        found = [each for each in affected(self._handle, due) if self._is_to_recover(each, now)]
        lost = {each.group.key for each in found}
        steps = [(each.group, partial(self._recover, each, now)) for each in found]
        for stranded in self._under_way.due(now):
            if stranded.group.key not in lost:
                steps.append((stranded.group, partial(self._try_again, stranded, now)))
        self._is_cut_short = self._plan(steps, now)

    def _plan(self, steps: Sequence[tuple[PodGroup, Callable[[], None]]], now: float) -> bool:
        """Plan for groups one after the other; whether time was up before the last. A fault harms its group alone."""
        budget = Deadline(_AT_ONCE_SECONDS)
        for group, step in steps:
            if budget.passed:
                return True
            try:
                with self._handle.within(Deadline(GANG_SECONDS)), self._spares.lifted():
                    step()
            except GanglineError as error:
                self._under_way.strand(group, now, now)
                log.error("gang %s/%s: its recovery: %s", group.namespace, group.name, error)
        return False

    def _let_go(self) -> None:
        """Members that were being removed are on lost nodes now: nobody waits for them, nor for a dead node's word."""
        for pod, loss in self._lost:
            if loss.is_dead and pod.terminating and pod.uid not in self._forced and self._is_removed(pod):
                self._forced.add(pod.uid)
                self._handle.spawn(partial(self._force, pod, loss))
        self._forced.intersection_update(self._handle.state.pods)
        held = self._under_way.held()
        if not all(self._under_way.are_leaving(key, self._health.all) for key in held):
            self._handle.announce(ClusterEvent(_HAVE_LEFT, Action.UPDATE_OTHER))

    def _is_removed(self, pod: PodInfo) -> bool:
        under_way = self._under_way.recovering.get(self._key_of(pod))
        return under_way is not None and pod.uid in under_way.removed

    async def _force(self, pod: PodInfo, loss: Loss) -> None:
        try:
            await self._removing.carry_out([pod], (loss.node,), (), loss.why)
        except GanglineError as error:
            log.error("pod %s: %s", pod.key, error)

    def _seen(self) -> Mapping[str, Loss]:
        """The lost nodes, within the grace too; without those that are not ready if that is so of most."""
        is_blind = self._health.is_blind(self._args.most_lost_fraction)
        if is_blind and not self._is_blind:
            log.error("recovery of gangs: most nodes are not ready, so nothing is moved because of that")
        self._is_blind = is_blind
        losses = self._health.all
        return {name: loss for name, loss in losses.items() if loss.is_dead} if is_blind else losses

    def _is_to_recover(self, each: Affected, now: float) -> bool:
        under_way = self._under_way.recovering.get(each.group.key)
        if under_way is not None and under_way.removed.issuperset(pod.uid for pod in each.lost):
            return False
        return not self._under_way.rests(each.group.key, now)

    def _allowed(self) -> BoolColumn:
        nodes = self._handle.nodes
        allowed: BoolColumn = nodes.alive.copy()
        allowed[[row for name in self._health.all if (row := nodes.row_of(name)) is not None]] = False
        return allowed

    def _places(self) -> Places:
        return Places(self._handle, self._allowed(), self._spares.lent)

    def _recover(self, each: Affected, now: float) -> None:
        """Begin the recovery of a group with members on lost nodes, or find that there is no place."""
        group, policy = each.group, policy_of(self._handle, each.group, each.lost[0])
        if policy is RecoveryPolicy.NONE:
            return
        waiting, replaced = self._waiting(group.key)
        self._under_way.end(group.key)
        plan = find_recovery(self._handle, group, each.lost, waiting, replaced, policy, self._places())
        why = "; ".join(loss.why for loss in list(each.losses.values())[:3])
        if plan is not None:
            self._begin(group, plan, each.dead, f"{len(each.lost)} members are lost ({why})", each.since)
            return
        self._wait(self._under_way.strand(group, now, each.since), each.lost, why, now, each.lost, each.dead)

    def _waiting(self, key: str) -> tuple[list[PodInfo], Container[str]]:
        """Members of a group that are to come or are queued, and the UIDs of those in whose place they are."""
        awaited = self._under_way.recovering.get(key)
        if awaited is None:
            return list(self._handle.queued_members(key)), ()
        return [pod for pod, _ in awaited.places], awaited.removed

    def _try_again(self, stranded: Stranded, now: float) -> None:
        """Look once more at a group that runs in part and has no room for the rest."""
        group = stranded.group
        attempt = self._handle.attempt(group.key)
        if attempt is None or not attempt.placed or not attempt.needed or is_helped(self._handle, attempt):
            del self._under_way.stranded[group.key]
            return
        policy = policy_of(self._handle, group, attempt.first)
        plan = find_recovery(self._handle, group, (), attempt.pods, (), policy, self._places())
        if plan is not None and (plan.is_move or plan.lent):
            self._begin(group, plan, (), "there is no room beside the other members", stranded.since)
        elif plan is not None:
            del self._under_way.stranded[group.key]  # the next attempt places it
        else:
            why = "there is no room beside the other members, nor for all of them elsewhere"
            self._wait(self._under_way.strand(group, now, now), attempt.pods, why, now)

    def _begin(self, group: PodGroup, plan: RecoveryPlan, dead: Collection[str], why: str, since: float) -> None:
        nodes = sorted({node for _, node in plan.places})
        where = f"room is kept on {', '.join(nodes[:3])}{' and others' if len(nodes) > 3 else ''}" if nodes else ""
        how = "the gang moves as a whole" if plan.is_move else "all members restart" if plan.evicted else ""
        left = f"{len(plan.lent)} pods leave lent spares" if plan.lent else ""
        note = "; ".join(part for part in (why, where, how, left) if part)
        until = self._handle.clock.monotonic() + self._args.room_seconds
        self._under_way.begin(group, plan, since, until)
        self._notices.began(group, [*plan.lost, *plan.evicted, *plan.lent], note)
        self._handle.spawn(partial(self._carry_out, group, plan, dead, note))

    async def _carry_out(self, group: PodGroup, plan: RecoveryPlan, dead: Collection[str], note: str) -> None:
        try:
            await self._removing.carry_out(plan.lost, dead, plan.evicted, note, plan.lent)
        except GanglineError as error:
            now = self._handle.clock.monotonic()
            self._under_way.end(group.key)
            self._under_way.strand(group, now, now)
            self._notices.ended(group, [*plan.lost, *plan.evicted], RecoveryEnd.GIVEN_UP, str(error), 0.0)
            self._changed.set()

    def _wait(
        self,
        stranded: Stranded,
        pods: Sequence[PodInfo],
        why: str,
        now: float,
        lost: Sequence[PodInfo] = (),
        dead: Collection[str] = (),
    ) -> None:
        """Tell `pods` that their group waits for room, or release its members if it has waited for too long."""
        group, release = stranded.group, self._args.release_seconds
        if release and now >= stranded.since + release:
            del self._under_way.stranded[group.key]
            gone = {pod.uid for pod in lost}
            others = [pod for pod in self._handle.members(group.key) if pod.uid not in gone]
            note = f"no place was found in {release:g} s, so {len(others)} members are released; {why}"
            self._notices.ended(group, others, RecoveryEnd.RELEASED, note, now - stranded.since)
            self._handle.spawn(partial(self._release, group, lost, dead, others, note))
        elif not stranded.is_told:
            stranded.is_told = True
            after = f" in {stranded.since + release - now:.0f} s" if release else " never"
            self._notices.waits(group, pods, f"{why}; it is tried again, and the other members are released{after}")

    async def _release(
        self,
        group: PodGroup,
        lost: Sequence[PodInfo],
        dead: Collection[str],
        others: Sequence[PodInfo],
        note: str,
    ) -> None:
        try:
            await self._removing.carry_out(lost, dead, others, note, is_restart=False)
        except GanglineError as error:
            log.error("gang %s/%s: %s", group.namespace, group.name, error)
