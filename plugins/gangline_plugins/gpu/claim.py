"""GpuClaim: a pod gets a node that can meet its claim, and exactly the devices there that meet it best.

A claim that names a DeviceClass gets no devices here: a ResourceClaim carries it out. See `carrying` and `upkeep`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Annotated

import msgspec

from gangline import (
    NODE,
    PODS,
    SKIP,
    Action,
    CodeColumn,
    Cycle,
    Diagnosis,
    EventHint,
    Handle,
    Int64Column,
    NodeView,
    PodInfo,
    ScoreColumn,
    StateKey,
    Status,
    custom_resources,
    hookimpl,
    model,
    on,
    resources,
    unschedulable,
)
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.believing import AT_ONCE, SETTLE
from gangline_plugins.gpu.carrying import Carrying, allocated
from gangline_plugins.gpu.claim_status import ClaimStatuses
from gangline_plugins.gpu.counting import count
from gangline_plugins.gpu.decision_metrics import DecisionMetrics
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.fabric_worth import fabric_worth
from gangline_plugins.gpu.feasibility import DeviceLimits, Feasibility
from gangline_plugins.gpu.hardware import heartbeat, says_the_same
from gangline_plugins.gpu.illness import Illness
from gangline_plugins.gpu.late_statuses import LateStatuses
from gangline_plugins.gpu.reasons import REASONS
from gangline_plugins.gpu.upkeep import TEMPLATES, Upkeep
from gangline_plugins.gpu.wants import (
    DISAGREES,
    INVALID_CLAIM,
    Carried,
    Want,
    WantProblem,
    disagreement,
    entry_of,
)
from gangline_plugins.telling import Teller
from gangline_plugins.twin_gpus import TwinGpus

WANT: StateKey[Want] = StateKey("GpuClaim want")
FEASIBILITY: StateKey[Feasibility] = StateKey("GpuClaim feasibility")
"""Holds the verdict, the bandwidth and the wholeness of each node."""
CARRIED: StateKey[Carried] = StateKey("GpuClaim carried")
"""Instead of the want: a claim that a ResourceClaim carries out."""
RESERVED: StateKey[Allocation] = StateKey("GpuClaim reserved")
"""The allocation that `reserve` made, as the binding writes it."""
TOLD: StateKey[Carried] = StateKey("GpuClaim told")
"""The carried claim whose status `reserve` has set."""
_DECIDING = frozenset((custom_resources.CLAIM, custom_resources.SCHEDULING_MAP))
"""The annotations that say which devices a pod wants."""


class GpuClaimArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of GpuClaim."""

    implicit_claims: bool = True
    """Whether a plain request for `nvidia.com/gpu` gets whole devices chosen on nodes that report theirs."""
    allow_unknown_health: bool = False
    """Whether devices of unknown health may be allocated."""
    stale_after_seconds: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    """Seconds after a node's last report from which its devices are of unknown health."""
    require_report: bool = False
    """Whether pods that request GPUs go only to nodes that report theirs, so that each pod's devices are known."""
    require_request: bool = False
    """Whether pods whose claim gives them whole GPUs have to request as many of `nvidia.com/gpu`, so that quotas count
    them.
    """
    fail_requests_greater_than_one: bool = False
    """Whether time-sliced nodes reject pods that ask for several replicas; set it as in the device plugin."""


class GpuClaim:
    """Enforces claims in `filter`, prefers nodes with the fabric that a claim prefers, and reserves devices."""

    name = "GpuClaim"
    args_type = GpuClaimArgs
    reads = NODE | PODS
    reasons = REASONS
    watches = (resources.GPU_CLAIMS, resources.GPU_NODE_STATUSES, resources.RESOURCE_CLAIMS, TEMPLATES)

    def __init__(self, args: GpuClaimArgs, handle: Handle) -> None:
        self._handle = handle
        self._teller = Teller(handle)
        self._implicit = args.implicit_claims
        self._requires_request = args.require_request
        self._limits = DeviceLimits(
            args.stale_after_seconds,
            args.allow_unknown_health,
            args.fail_requests_greater_than_one,
            args.require_report,
        )
        self._table = device_table(handle.state)
        self._twins = self._table.meet(handle.state.shared(TwinGpus, handle.state))
        self._table.chooses_for.add(handle.profile, args.implicit_claims, handle.state)
        self._feasibility = Feasibility(self._table, self._limits)
        self.reads_own = (self._feasibility.aged,)
        self._illness = handle.state.shared(Illness)
        self._statuses = ClaimStatuses(handle)
        self._carrying = Carrying(handle)
        self._judged: tuple[custom_resources.GpuNodeStatus | None, bool] = (None, False)
        self._doubted = handle.metric(
            "gangline_unbelieved_allocations", "Pods that said to have devices and were not believed."
        )
        self._decisions = DecisionMetrics(handle)
        handle.run(self._look_at_doubts)
        handle.run(self._look_at_health)
        handle.run(Upkeep(handle).run)
        handle.run(LateStatuses(handle, self._table, self._statuses).run)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Changes of the pod's claim, of nodes and their reports, and of leases; deleted pods that free devices."""
        return (
            on("gpuclaims", Action.ADD | Action.UPDATE, _is_its_claim),
            on("gpunodestatuses", Action.ADD | Action.UPDATE | Action.DELETE, self._says_something_new),
            on("pods", Action.DELETE, self._frees_devices),
            on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL),
            on("leases", Action.UPDATE | Action.DELETE),
            on("resourceclaims", Action.ADD, _may_carry),
            on("resourceclaims", Action.UPDATE | Action.DELETE, self._twins.may_be_freed),
        )

    @hookimpl
    def pre_cycle(self, pod: PodInfo) -> None:
        """Find nodes whose last report is too old, and forget the devices that the pod got at an earlier attempt."""
        self._feasibility.look(self._handle.clock.now())
        self._table.forget(pod.uid)
        self._tell_of_begin(pod)

    @hookimpl
    def pre_cycle_all(self, pods: Sequence[PodInfo]) -> None:
        """As `pre_cycle` for each."""
        self._feasibility.look(self._handle.clock.now())
        self._table.forget_all([pod.uid for pod in pods])
        for pod in pods:
            if pod.annotations:
                self._tell_of_begin(pod)

    def _tell_of_begin(self, pod: PodInfo) -> None:
        """Set the status of a claim that has none yet."""
        if (
            custom_resources.CLAIM in pod.annotations
            and not pod.is_anew  # a standby rehearses with such a pod, and writes nothing
            and isinstance(self._want(pod), Want | Carried)
            and self._statuses.is_new(pod)
        ):
            self._statuses.tell(pod, "Pending")

    @hookimpl
    def identity(self, pod: PodInfo) -> Hashable:
        """The want of the pod's claim or map; None without both, because then the requests decide."""
        return None if _DECIDING.isdisjoint(pod.annotations) else (self._want(pod),)

    @hookimpl
    def identity_all(self, pods: Sequence[PodInfo]) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        for pod in pods:
            if not _DECIDING.isdisjoint(pod.annotations):
                return list(map(self.identity, pods))
        return None

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Read the pod's want; pods that want no GPUs skip the plugin."""
        want = self._want(pod)
        if want is None:
            return SKIP
        if isinstance(want, WantProblem):
            return unschedulable(want.message, resolvable=False)
        if isinstance(want, Carried):
            cycle.write(CARRIED, want)
            return None
        cycle.write(WANT, want)
        cycle.write(FEASIBILITY, self._feasibility)
        return None

    def _want(self, pod: PodInfo) -> Want | Carried | WantProblem | None:
        """What the pod's claim asks for, or why it cannot be met; None if this plugin does not concern the pod."""
        want = self._table.wants.asked(pod)
        if want is None or isinstance(want, WantProblem):
            return want
        if isinstance(want, Carried):
            return self._carrying.judge(pod, want) or want
        if want.implicit and not self._implicit:
            return None
        if wrong := disagreement(pod, want):
            return WantProblem(wrong, DISAGREES)
        if self._requires_request and (lacking := _lacks_request(pod, want)):
            return WantProblem(lacking, reason="GpuRequestMissing")
        return want

    @hookimpl
    def filter(self, cycle: Cycle, nodes: NodeView) -> CodeColumn:
        """Nodes that cannot meet the claim now, each with its first reason."""
        carried = cycle.get(CARRIED)
        if carried is not None:
            return self._feasibility.without_devices(carried, nodes)
        return self._feasibility.of(cycle.read(WANT), nodes).codes

    @hookimpl
    def post_reject(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        """Record an event that says what is wrong with the pod's claim."""
        problem = self._want(pod)
        if isinstance(problem, WantProblem) and problem.reason:
            self._teller.once(pod, problem.reason, problem.message)
            if problem.reason == INVALID_CLAIM:
                self._statuses.tell(pod, "Failed", message=problem.message)

    @hookimpl
    def capacity(self, cycle: Cycle, nodes: NodeView) -> Int64Column | None:
        """How many such pods the free devices, shares of devices or instances of each node suffice for."""
        want = cycle.get(WANT)
        return None if want is None else count(self._table, want, nodes)

    @hookimpl
    def pre_score(self, cycle: Cycle) -> Status | None:
        """Skip the score unless the claim prefers a fabric."""
        want = cycle.get(CARRIED) or cycle.get(WANT)
        return None if want is not None and want.fabric.has_preference else SKIP

    @hookimpl
    def score(self, cycle: Cycle, nodes: NodeView) -> ScoreColumn:
        """The mean of the scores for spare RDMA ports, preferred adapters, and cuFile."""
        want = cycle.get(CARRIED) or cycle.read(WANT)
        return 100.0 * fabric_worth(want.fabric, self._table, nodes)

    @hookimpl
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Make the choice of devices firm; the binding writes them on the pod."""
        carried = cycle.get(CARRIED)
        if carried is not None:
            cycle.write(TOLD, carried)
            self._statuses.tell(pod, "Reserved", node)
        want = cycle.get(WANT)
        if want is None:
            return None
        allocation = self._table.reserve(pod.uid)
        if allocation is None:
            row = self._handle.nodes.row_of(node)
            if want.implicit and row is not None and not self._table.columns.known[row]:
                return None
            return unschedulable(f"node {node} has no devices left for the claim")
        allocation.write(cycle.annotations)
        cycle.write(RESERVED, allocation)
        self._decisions.count(want, allocation, self._table.links(allocation.row))
        if pod.annotations:  # else it has no claim
            self._statuses.tell(pod, "Reserved", node, allocation)
        if want.exclusivity == "MIG" and not want.implicit:
            self._warn_of_late_claim(pod)
        return None

    @hookimpl
    def reserve_all(
        self, cycles: Sequence[Cycle], pods: Sequence[PodInfo], nodes: Sequence[str]
    ) -> Callable[[], None] | None:
        """As `reserve` for pods without a claim. A pod that lacks devices is left to `reserve`."""
        known, row_of, given = self._table.columns.known, self._handle.nodes.row_of, self._table.allocation
        found: list[tuple[Cycle, str, Want]] = []
        for cycle, pod, node in zip(cycles, pods, nodes, strict=True):
            want = cycle.get(WANT)
            if pod.annotations and custom_resources.CLAIM in pod.annotations:
                return None
            if want is None:
                continue
            if given(pod.uid) is not None:
                found.append((cycle, pod.uid, want))
            elif not want.implicit or (row := row_of(node)) is None or known[row]:
                return None
        return partial(self._reserve_found, found)

    def _reserve_found(self, found: Sequence[tuple[Cycle, str, Want]]) -> None:
        reserved = self._table.reserve_all([uid for _, uid, _ in found])
        for (cycle, _, _), (allocation, _) in zip(found, reserved, strict=True):
            allocation.write(cycle.annotations)
            cycle.write(RESERVED, allocation)
        self._decisions.count_all([want for _, _, want in found], reserved)

    @hookimpl
    def unreserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """Forget the choice: the pod does not go to its node after all."""
        self._table.forget(pod.uid)
        is_told = cycle.get(WANT) is not None and custom_resources.ALLOCATED in cycle.annotations
        if is_told or cycle.get(TOLD) is not None:
            self._statuses.tell(pod, "Failed", message=f"the reservation on node {node} was given back")

    @hookimpl
    async def post_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """Write the devices into the claim's status. They come from `reserve`, because the table may follow the watch
        by now.
        """
        reserved = cycle.get(RESERVED)
        if reserved is not None:
            self._statuses.tell(pod, "Bound", node, reserved)
        if cycle.get(TOLD) is not None and (claim := self._carrying.of(pod)) is not None:
            note = f"ResourceClaim {claim.metadata.name}"
            self._statuses.tell(pod, "Bound", node, message=note, allocated=allocated(claim, node))

    async def _look_at_doubts(self) -> None:
        """Record an event on each pod whose annotation is not believed, after supporting objects have had time to
        arrive.
        """
        while True:
            await asyncio.sleep(SETTLE)
            for _ in self._table.settle_beliefs(self._handle.clock.monotonic()):
                await asyncio.sleep(0)
            for doubt in self._table.beliefs.open_doubts():
                if self._teller.once(doubt.pod, "AllocationNotBelieved", doubt.note):
                    self._doubted.inc()

    async def _look_at_health(self) -> None:
        """Tell pods whose devices have become unhealthy."""
        while True:
            news = self._illness.news(self._table, self._handle.state)
            for number, (pod, note) in enumerate(news, start=1):
                self._handle.recorder.event(pod, "Warning", "GpuUnhealthy", note)
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(SETTLE)

    def _warn_of_late_claim(self, pod: PodInfo) -> None:
        """Warn of a claim for instances that came after its pod: the webhook could not let containers read UUIDs."""
        name = pod.annotations.get(custom_resources.CLAIM, "")
        claim: custom_resources.GpuClaim | None = self._handle.state.store(resources.GPU_CLAIMS).get(
            name, pod.namespace
        )
        if claim is not None and pod.created < (claim.metadata.creation_timestamp or ""):
            late = f'GpuClaim "{pod.namespace}/{name}" came after the pod'
            note = f"{late}: it may see device ids, which name no MIG instance; make it again"
            self._handle.recorder.event(pod, "Warning", "GpuClaimCameLate", note)

    def _says_something_new(
        self, pod: PodInfo, old: custom_resources.GpuNodeStatus | None, new: custom_resources.GpuNodeStatus | None
    ) -> bool:
        """Whether a report is more than a heartbeat, or the first one for long. Asked for every pod, computed once."""
        if old is None or new is None:
            return True
        if self._judged[0] is not new:
            late = heartbeat(new) - heartbeat(old) > self._limits.stale_after
            self._judged = (new, late or not says_the_same(old, new))
        return self._judged[1]

    def _frees_devices(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        return old is None or custom_resources.ALLOCATED in old.annotations or self._table.wants.of(old) is not None


def _lacks_request(pod: PodInfo, want: Want) -> str:
    """Why a pod whose claim gives it whole GPUs has to request them; "" if it does so or need not."""
    if want.implicit or want.exclusivity != "Exclusive" or pod.cls.requests.real.get(custom_resources.GPU, 0):
        return ""
    return f"the pod's claim gives it {want.count} GPUs: it has to request {custom_resources.GPU}: {want.count}"


def _may_carry(pod: PodInfo, old: object, new: model.ResourceClaim) -> bool:
    """Whether a ResourceClaim came in the namespace of a pod whose claim a ResourceClaim carries out."""
    return new.metadata.namespace == pod.namespace and entry_of(pod) is not None


def _is_its_claim(pod: PodInfo, old: custom_resources.GpuClaim | None, new: custom_resources.GpuClaim) -> bool:
    is_its = (new.metadata.namespace, new.metadata.name) == (pod.namespace, pod.annotations.get(custom_resources.CLAIM))
    return is_its and (old is None or old.spec != new.spec)
