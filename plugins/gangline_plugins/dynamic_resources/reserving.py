"""Reserve and unreserve: makes the devices of placed pods firm for their bindings, and gives them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gangline import Cycle, Handle, NodeView, PodInfo, StateKey, Status, unschedulable
from gangline_plugins.dynamic_resources.binding import IN_USE, NOT_HERE, ClaimBinding, ReservedClaims
from gangline_plugins.dynamic_resources.claims import ClaimProblem
from gangline_plugins.dynamic_resources.extended import is_extended
from gangline_plugins.dynamic_resources.ledger import Ledger
from gangline_plugins.dynamic_resources.needing import is_full

RESERVED: StateKey[ReservedClaims] = StateKey("DynamicResources reserved")


class ClaimReserving:
    """Reserves the claims of pods with a node."""

    def __init__(self, handle: Handle, ledger: Ledger, binding: ClaimBinding) -> None:
        self._handle = handle
        self._ledger = ledger
        self._binding = binding

    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Make the choice of devices firm, or say why the pod is rejected."""
        row = self._handle.nodes.row_of(node)
        try:
            claims = self._ledger.claims.of(pod) if row is None else self._ledger.claims_at(pod, row)
        except ClaimProblem as problem:
            return unschedulable(str(problem))
        if not claims:
            return None
        chosen = None if row is None else self._ledger.reserve(pod, claims, row)
        if chosen is None:
            return unschedulable(f"node {node} has no devices left for the claims of the pod")
        reserved = ReservedClaims(claims, chosen)
        cycle.write(RESERVED, reserved)
        if row is None or not self._are_here(reserved, node, row):
            return unschedulable(NOT_HERE)
        try:
            return unschedulable(IN_USE) if self._is_one_full(pod, reserved) else None
        except ClaimProblem as problem:
            return unschedulable(str(problem))

    def reserve_all(
        self, cycles: Sequence[Cycle], pods: Sequence[PodInfo], nodes: Sequence[str]
    ) -> Callable[[], None] | None:
        """A function that does what `reserve` does for all of these pods; None if `reserve` might reject one of them,
        or give it other devices.
        """
        found: list[tuple[Cycle, PodInfo, ReservedClaims]] = []
        view = self._handle.nodes
        for cycle, pod, node in zip(cycles, pods, nodes, strict=True):
            reserved = self._certain(pod, node, view)
            if reserved is None:
                return None
            if reserved.claims:
                found.append((cycle, pod, reserved))
        return partial(self._reserve_found, found)

    def _certain(self, pod: PodInfo, node: str, view: NodeView) -> ReservedClaims | None:
        """The claims with the devices that they have already; None if `reserve` has to look at the pod."""
        ledger, row = self._ledger, view.row_of(node)
        if row is None or ledger.concessions.are_made_by(pod):
            return None
        try:
            claims = ledger.claims_at(pod, row)
            chosen = ledger.chosen(claims)
            if chosen is None:
                return None
            reserved = ReservedClaims(claims, chosen)
            return reserved if self._are_here(reserved, node, row) and not self._is_one_full(pod, reserved) else None
        except ClaimProblem:
            return None

    def _reserve_found(self, found: Sequence[tuple[Cycle, PodInfo, ReservedClaims]]) -> None:
        for cycle, pod, reserved in found:
            self._ledger.make_firm(pod, reserved.chosen)
            cycle.write(RESERVED, reserved)

    def _are_here(self, reserved: ReservedClaims, node: str, row: int) -> bool:
        return all([self._binding.reaches(each, node, row) for each in reserved.chosen.values()])

    def _is_one_full(self, pod: PodInfo, reserved: ReservedClaims) -> bool:
        return any([is_full(self._ledger, pod, each) for each in reserved.claims])

    def unreserve(self, cycle: Cycle, pod: PodInfo) -> None:
        """Give back the choice, and in the background what was written."""
        reserved = cycle.get(RESERVED)
        if reserved is None:
            return
        if not reserved.touched:
            self._ledger.forget(pod, reserved.uids)
            return
        for uid, claim in reserved.touched.items():
            self._ledger.leaving(uid, True)
            if is_extended(claim):
                self._ledger.extended.leaving.add(pod.uid)
        self._handle.spawn(partial(self._binding.take_back, pod, reserved))
