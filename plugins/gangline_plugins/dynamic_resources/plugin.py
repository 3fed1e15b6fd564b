"""The plugin: decides by the ledger and the columns of devices, and carries the decision out with `binding`.

A pod is held until its claims exist. `needing` then says what the pod needs: claims that have devices, which restrict
the nodes, and claims without devices, which ask for some. `judging` answers for all nodes at once. Reserve chooses the
devices on the pod's node and takes them in the `ledger`, so that the next decision sees them as taken; pre-bind writes
them to the claims; unreserve gives them back.

If nothing fits, the plugin looks for devices that are held for nobody: those of an unused claim of the pod, or what
earlier attempts have left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from gangline import (
    NODE,
    SKIP,
    SKIP_CLASS,
    Action,
    CodeColumn,
    Cycle,
    Diagnosis,
    EventHint,
    GroupAttempt,
    Handle,
    Int64Column,
    InvalidObject,
    NodeView,
    Placement,
    PodInfo,
    Reason,
    Rows,
    ScoreColumn,
    StateKey,
    Status,
    default_normalize,
    hookimpl,
    model,
    node_selection,
    on,
    resources,
    unschedulable,
)
from gangline_plugins.claim_profiles import ClaimProfiles
from gangline_plugins.dynamic_resources.arguments import DynamicResourcesArgs
from gangline_plugins.dynamic_resources.binding import LEFT_BEHIND, NOT_HERE, TAKEN_BACK, ClaimBinding
from gangline_plugins.dynamic_resources.claims import ClaimProblem, Claims, names_of, uses_claims
from gangline_plugins.dynamic_resources.extended import pod_of
from gangline_plugins.dynamic_resources.giving_back import DROPPED, GIVEN_BACK, GivingBack
from gangline_plugins.dynamic_resources.judging import ELSEWHERE, FIRST_ERROR, MAY_COME_FREE, Judge, Need
from gangline_plugins.dynamic_resources.ledger import ledger
from gangline_plugins.dynamic_resources.needing import Needs
from gangline_plugins.dynamic_resources.orders import BEST
from gangline_plugins.dynamic_resources.preferring import has_alternatives, most, preference
from gangline_plugins.dynamic_resources.readiness import Readiness
from gangline_plugins.dynamic_resources.referring import POD_GROUPS, say_unless_served
from gangline_plugins.dynamic_resources.reserving import RESERVED, ClaimReserving
from gangline_plugins.dynamic_resources.sharing import SharedClaims
from gangline_plugins.dynamic_resources.two_masters import TwoMasters
from gangline_plugins.twin_gpus import TwinGpus

_UNHELPED = "no new claims to deallocate"
_NEED: StateKey[Need] = StateKey("DynamicResources need")


class DynamicResources:
    """Gives claims devices of the pod's node, and writes them before the pod is bound."""

    name = "DynamicResources"
    args_type = DynamicResourcesArgs
    reads = NODE
    errors_from = FIRST_ERROR
    watches: tuple[resources.Resource[Any], ...] = (
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_SLICES,
        resources.DEVICE_CLASSES,
        resources.NAMESPACES,
    )

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._handle = handle
        self._ledger = ledger(handle)
        self._devices = self._ledger.devices
        self._heeds_taint_rules = args.feature_gates.taint_rules
        if self._heeds_taint_rules:
            self.watches = (*type(self).watches, resources.DEVICE_TAINT_RULES)
            self._ledger.offering.heed_taint_rules()
        if args.feature_gates.list_attributes:
            self._ledger.offering.read_lists()
        if args.feature_gates.workload_claims:
            self.watches = (*self.watches, *POD_GROUPS)
            self._ledger.references.heed_groups()
            handle.run(lambda: say_unless_served(handle.client))
        self._needs = Needs(handle, self._ledger)
        self._judge = Judge(self._ledger)
        readiness = Readiness(handle, args.binding_timeout)
        self._binding = ClaimBinding(handle, self._ledger, readiness)
        self._reserving = ClaimReserving(handle, self._ledger, self._binding)
        self._giving_back = GivingBack(handle, self._ledger, self._binding, readiness)
        self._extended = self._ledger.extended
        self._extended.served.give_out_in(handle)
        handle.state.shared(ClaimProfiles).add(handle.profile, True, handle.state)
        self._order = args.allocation_order
        self._shared = SharedClaims(self._ledger, self._needs, self._order)
        if args.allocation_order == BEST:
            self._devices.expect_weighing()
        self._ledger.orders.add(handle.profile, args.allocation_order, handle.state)
        self._filter_timeout = float(args.filter_timeout)
        TwoMasters(handle)
        self._twins = self._ledger.meet(handle.state.shared(TwinGpus, handle.state))
        self.reads_own = (self._devices.changes,)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Objects whose change gives a pod its claims, makes devices available, or shows devices."""
        changed = Action.ADD | Action.UPDATE | Action.DELETE
        rules = (on("devicetaintrules", changed, self._has_its_claims),) if self._heeds_taint_rules else ()
        groups = [on(each.key, Action.ADD, self._is_of_group) for each in POD_GROUPS if each in self.watches]
        return (
            *rules,
            *groups,
            on("resourceclaims", Action.ADD | Action.UPDATE | Action.DELETE, self._is_news_of_claim),
            on("resourceslices", Action.ADD | Action.UPDATE | Action.DELETE, self._has_its_claims),
            on("deviceclasses", Action.ADD | Action.UPDATE, self._has_its_claims),
            on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL, self._has_its_claims),
            on("nodes", Action.UPDATE_NODE_ALLOCATABLE, lambda pod, *_: bool(self._extended.served.of(pod.cls))),
            on("namespaces", Action.UPDATE),
            on("pods", Action.DELETE, lambda pod, old, new: old is None or self._concerns(old) or self._twins.are_some),
            on(TAKEN_BACK, Action.UPDATE_OTHER),
        )

    def _is_of_group(self, pod: PodInfo, old: object, new: model.PodGroup | None) -> bool:
        """Whether this PodGroup is the pod's, which may wait for it."""
        return new is None or (new.metadata.namespace, new.metadata.name) == (pod.namespace, pod.group)

    def _is_news_of_claim(self, pod: PodInfo, old: model.ResourceClaim | None, new: model.ResourceClaim | None) -> bool:
        """Whether the claim is one of the pod's, or has given devices back."""
        if old is not None and old.status.allocation and (new is None or new.status.allocation is None):
            return True
        claim = new or old
        if claim is None or claim.metadata.namespace != pod.namespace:
            return claim is None
        if pod_of(claim) == pod.uid:
            return True
        try:
            return claim.metadata.name in names_of(pod)
        except ClaimProblem:
            return True

    def _concerns(self, pod: PodInfo) -> bool:
        """Whether the pod has claims, or requests resources that devices serve."""
        return uses_claims(pod.cls) or bool(self._extended.served.of(pod.cls))

    def _has_its_claims(self, pod: PodInfo, old: object, new: object) -> bool:
        """Whether the pod waits for devices, and not for a claim to be made."""
        return self._held(pod) is None

    def _held(self, pod: PodInfo) -> ClaimProblem | None:
        """Why the pod is held."""
        try:
            self._ledger.claims.of(pod)
        except ClaimProblem as problem:
            return problem
        return None

    @hookimpl
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Hold pods whose claims are not there yet."""
        if not uses_claims(pod.cls):
            return None
        problem = self._held(pod)
        return unschedulable(str(problem), resolvable=False) if problem is not None else None

    @hookimpl
    def identity(self, pod: PodInfo) -> Hashable:
        """The specs of claims without devices that the pod does not share with its gang, and the other claims as they
        stand.

        And which classes serve its extended resources, with what an earlier attempt has left behind.
        """
        served = self._extended.served.of(pod.cls)
        if not served and not uses_claims(pod.cls):
            return None
        need = self._needs.of(pod)
        if isinstance(need, str):
            return need
        try:
            own = self._devices.asked(need.own) if need.own else None
        except InvalidObject as error:
            return str(error)
        named = [self._as_it_stands(claim) for claim in need.named]
        return (
            (own, need.priority, *named, tuple(served.items()), *(claim.metadata.uid for claim in need.left))
            if served
            else (own, need.priority, *named)
        )

    @hookimpl
    def identity_all(self, pods: Sequence[PodInfo]) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        for cls in {pod.cls for pod in pods}:
            if uses_claims(cls) or self._extended.served.of(cls):
                return list(map(self.identity, pods))
        return None

    def _as_it_stands(self, claim: model.ResourceClaim) -> Hashable:
        uid = claim.metadata.uid
        return uid, self._ledger.turn(uid), self._giving_back.is_lost(claim)

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Check the claims; pods without claims skip the plugin."""
        if not self._concerns(pod):
            return SKIP_CLASS
        need = self._needs.of(pod)
        if isinstance(need, str):
            return unschedulable(need, resolvable=False)
        if not need.own and not need.named and need.pod is None:
            return SKIP
        lacking = self._judge.lacking(need)
        if need.pod is None:
            try:
                need.asked = [self._devices.asked(lacking) if lacking else None]
            except InvalidObject as error:
                return unschedulable(str(error), resolvable=False)
        cycle.write(_NEED, need)
        return None

    @hookimpl
    def filter(self, cycle: Cycle, nodes: NodeView) -> CodeColumn:
        """Nodes on which the devices of a claim cannot be used, and nodes without devices for the other claims."""
        need = cycle.read(_NEED)
        elsewhere = nodes.full(False)
        for claim in need.named:
            allocation = self._ledger.allocation(claim.metadata.uid)
            if allocation is not None and self._giving_back.is_lost(claim):
                elsewhere[:] = True
            elif allocation is not None and allocation.node_selector is not None:
                elsewhere |= ~node_selection.match_selector(allocation.node_selector, nodes)
        if need.left:
            return np.full(len(nodes), ELSEWHERE, dtype=np.uint16)
        within = cycle.deadline.at_most(self._filter_timeout) if self._filter_timeout else None
        codes = self._judge.codes(need, nodes, within)
        codes[elsewhere] = ELSEWHERE
        return codes

    def explain(self, cycle: Cycle, pod: PodInfo, code: int) -> Sequence[Reason]:
        """The reason that a code stands for."""
        need = cycle.get(_NEED)
        if need is not None and need.left:
            return (Reason(LEFT_BEHIND, resolvable=False),)
        text = self._judge.reason(need, code, self._lacking(pod)) if code > ELSEWHERE and need is not None else ""
        return (Reason(text or NOT_HERE, resolvable=code in MAY_COME_FREE),)

    def _lacking(self, pod: PodInfo) -> Claims:
        """The claims of a pod without devices, in the order in which they are asked about."""
        need = self._needs.of(pod)
        return [] if isinstance(need, str) else self._judge.lacking(need)

    @hookimpl
    def capacity(self, cycle: Cycle, nodes: NodeView) -> Int64Column | None:
        """At most how many pods with such claims of their own the free devices of each node suffice for."""
        need = cycle.get(_NEED)
        return None if need is None or not (need.own or need.pod) else self._judge.room(need, nodes, cycle.deadline)

    @hookimpl
    def post_filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis) -> Status | None:
        """Take the devices from a claim of the pod that nobody uses, if they are what keeps the pod from all nodes."""
        if not self._concerns(pod):
            return None
        need = cycle.get(_NEED)
        if need is None:
            return unschedulable(_UNHELPED)
        if need.left:
            self._giving_back.drop(pod, need.left)
            return unschedulable(DROPPED)
        for claim in need.named:
            newest = self._ledger.newest(claim)
            if self._giving_back.is_in_the_way(pod, newest, nodes):
                self._giving_back.give_back(pod, newest)
                return unschedulable(GIVEN_BACK)
        return unschedulable("still not schedulable")

    @hookimpl
    def placement_narrow(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> Iterable[Rows] | None:
        """Where members share a claim without devices: nodes that may use one of its devices together."""
        return self._shared.parts(attempt, placement, nodes)

    @hookimpl
    def pod_group_concede(self, attempt: GroupAttempt) -> AbstractContextManager[None] | None:
        """Members whose claims list alternatives make do with the last ones that their nodes have."""
        claiming = [pod for pod in attempt.pods if pod.row < 0 and uses_claims(pod.cls)]
        uids = [pod.uid for pod in claiming if has_alternatives(self._ledger.own(pod))]
        return self._ledger.concessions.made_by(uids) if uids else None

    @hookimpl
    def pod_group_key(self, attempt: GroupAttempt) -> Hashable:
        """Nothing is to be conceded or given back if no member has claims."""
        return None if self._has_claims(attempt) else ()

    @hookimpl
    def pod_group_can_help(self, attempt: GroupAttempt) -> bool:
        """False if no member has claims."""
        return self._has_claims(attempt)

    def _has_claims(self, attempt: GroupAttempt) -> bool:
        if any([uses_claims(role.pods[0].cls) for role in attempt.roles]):  # the members of a role have one class
            return True
        extended = self._ledger.extended
        return extended.has_some and any(map(extended.there, attempt.pods))

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status | None:
        """Give back what earlier attempts have left behind: claims for extended resources, devices of PodGroups, and
        devices of members, which may keep the gang from the nodes that have room by now.
        """
        done = self._giving_back.for_gang(attempt)
        return unschedulable(done) if done else None

    @hookimpl
    def pre_score(self, cycle: Cycle) -> Status | None:
        """Skip the score unless a claim lists alternatives, or which devices it gets matters."""
        need = cycle.get(_NEED)
        if need is None:
            return SKIP
        if has_alternatives(need.own + need.named):
            return None
        return None if self._order == BEST and (need.pod is not None or self._judge.lacking(need)) else SKIP

    @hookimpl
    def score(self, cycle: Cycle, nodes: NodeView) -> ScoreColumn:
        """How early in their lists the alternatives stand that the claims get on each node.

        In the order `best`, nodes that are equal in this are compared by what is lost with the devices: 0 to 100.
        """
        need = cycle.read(_NEED)
        had = 0.0
        for claim in need.named:
            allocation = self._ledger.allocation(claim.metadata.uid)
            had += preference(claim, allocation) if allocation is not None else 0.0
        if self._order == BEST:
            scale = 100.0 / (1 + most(need.own + need.named))
            return (self._judge.merits(need, nodes, cycle.deadline) + had) * scale
        if not has_alternatives(self._judge.lacking(need)):
            return np.full(len(nodes), had)
        return self._judge.preferences(need, nodes, cycle.deadline) + had

    @hookimpl
    def normalize_score(self, cycle: Cycle, pod: PodInfo, scores: ScoreColumn) -> ScoreColumn:
        """The best node gets the full score; in the order `best`, scores stay as they are."""
        return scores if self._order == BEST else default_normalize(scores)

    @hookimpl
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Make the choice of devices firm; the binding writes it."""
        if not self._concerns(pod):
            return None
        return self._reserving.reserve(cycle, pod, node)

    @hookimpl
    def reserve_all(
        self, cycles: Sequence[Cycle], pods: Sequence[PodInfo], nodes: Sequence[str]
    ) -> Callable[[], None] | Status | None:
        """As `reserve` for pods that `reserve` would not reject; nothing for pods without claims."""
        one_of_each = {pod.cls: pod for pod in pods}
        if not any(map(self._concerns, one_of_each.values())):
            return SKIP
        return self._reserving.reserve_all(cycles, pods, nodes)

    @hookimpl
    def unreserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """Give back the choice, and in the background what was written."""
        self._reserving.unreserve(cycle, pod)

    @hookimpl
    def pre_bind_pre_flight(self, cycle: Cycle) -> Status | None:
        """Whether the pod has claims."""
        return SKIP if cycle.get(RESERVED) is None else None

    @hookimpl
    async def pre_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Write the devices and the reservation of each claim. Raises ApiError."""
        reserved = cycle.get(RESERVED)
        return None if reserved is None else await self._binding.write(pod, node, reserved)

    @hookimpl
    async def post_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """What was chosen is written by now."""
        reserved = cycle.get(RESERVED)
        if reserved is not None:
            self._ledger.forget(pod, reserved.uids)
