"""The device table: every GPU of the cluster, the pods on it, and the devices of each pod.

All plugins and profiles of a cluster share one table, `device_table(state)`. It joins two sources:

- Hardware: node agents report each node's devices in a GpuNodeStatus; see `node_reports`.
- Occupancy: the scheduler's cache tells the table about every pod that is placed on a row or removed from it, including
  trial placements in a transaction. Undoing a transaction undoes each step, and a pod that returns to a row gets the
  devices that it had. So the table is then as it was before.

A pod has devices from the moment it is placed. Which ones depends on what is known:

1. A bound pod has the devices in its annotation, as far as they are believed; see `annotated`.
2. Any other placed pod gets the best free devices by the choice tables; see `choosing`. This choice is a guess: the
   table may choose again, for example when the hardware changes.
3. `reserve` makes the guess firm. From then on it stays, because the binding writes it on the pod.

If a pod turns out to have a device that is guessed for other pods, those pods get different devices. Each change on a
row is noted with the state, so that cached verdicts for the row are computed again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec
import numpy as np

from gangline import PodInfo, State, resources
from gangline_plugins.by_profile import ByProfile
from gangline_plugins.gpu import sharing
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.annotated import allocation_in, is_given, text_of
from gangline_plugins.gpu.believing import AT_ONCE, Beliefs
from gangline_plugins.gpu.choosing import ChoiceTables
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.late_claims import LateClaims
from gangline_plugins.gpu.lending import TwinLending
from gangline_plugins.gpu.like_nodes import WholeDevices
from gangline_plugins.gpu.links import LinkClass, LinkClasses, mask_of
from gangline_plugins.gpu.making_way import MakingWay
from gangline_plugins.gpu.node_devices import NodeDevices
from gangline_plugins.gpu.node_reports import NodeReports
from gangline_plugins.gpu.publishing import Publisher
from gangline_plugins.gpu.taken_off import OTHER, REMEMBERED, Before
from gangline_plugins.gpu.wants import Want, WantProblem, Wants, plain_want
from gangline_plugins.latest import Latest
from gangline_plugins.twin_gpus import TwinGpus


def device_table(state: State) -> DeviceTable:
    """The table of a cluster; the same object at each call."""
    return state.tracker(DeviceTable, state)


class DeviceTable:
    """Owner of the device columns and of all allocations."""

    def __init__(self, state: State) -> None:
        self.columns = Columns()
        self.classes = LinkClasses(lambda: np.unique(self.columns.link_class).tolist())
        self.tables = ChoiceTables(self.classes)
        self.wants = Wants(state)
        self.beliefs = Beliefs(state)
        self.chooses_for = ByProfile(False)
        """Whether a plain request for GPUs gets devices chosen in a profile."""
        self.reports = NodeReports(self.columns, self.classes, state, self)
        self._publisher = Publisher(self.columns, state)
        self._state = state
        self._nodes: dict[int, NodeDevices] = {}
        self._allocations: dict[str, Allocation] = {}
        self._before: Latest[str, Before] = Latest(REMEMBERED)
        self._reserved: Latest[str, Allocation] = Latest(REMEMBERED)
        """By UID: the firm allocations of pods that do not carry them in an annotation yet. They survive trial
        removals.
        """
        self._making_way = MakingWay(self._allocations, self._hold, self.wants, self.tables)
        self._late = LateClaims(self._count_anew)
        self.reports.follow()
        state.store(resources.GPU_CLAIMS).subscribe(self._late)

    @property
    def hca_sets(self) -> Sequence[frozenset[str]]:
        """The sets of RDMA adapters that nodes have, indexed by the number in the column `hcas`."""
        return self._publisher.hca_sets

    # Reading and reserving

    def allocation(self, uid: str) -> Allocation | None:
        """The devices of a placed pod, in a transaction or for good; None if it has none."""
        return self._allocations.get(uid)

    def choose(self, want: Want, row: int) -> Allocation | None:
        """The devices that a pod with this want would get on a row now; None if too few are free. Changes nothing."""
        node = self._nodes.get(row)
        return node.choose(want, row, self.tables) if node is not None else None

    def avoid(self, profile: str, row: int, ids: Iterable[int]) -> None:
        """From now on choose these devices of a node last for pods of a profile: they failed lately."""
        self.node_at(row).avoided[profile] = mask_of(ids)

    def problem(self, row: int) -> str:
        """Why the report of a node cannot be used; "" if it can be used or there is none."""
        node = self._nodes.get(row)
        return node.problem if node is not None else ""

    def holders(self, row: int) -> dict[int, list[str]]:
        """For each device in use the UIDs of the pods on it."""
        node = self._nodes.get(row)
        return sharing.holders(node, self._allocations) if node is not None else {}

    def is_taken_from(self, pod: PodInfo, row: int, ids: Iterable[int]) -> bool:
        """Whether one of these devices is in use by a pod that does not share it: only pods with scheduling maps in the
        pod's own namespace share.
        """
        node = self._nodes.get(row)
        return node is not None and sharing.is_taken_from(pod, ids, node, self._allocations)

    def settle_beliefs(self, now: float) -> Iterator[None]:
        """Judge for good the annotations of pods that have been known for a while; yields between batches."""
        due = self.beliefs.settle(now)
        for number, uid in enumerate(due, start=1):
            self.judge_again(uid)
            if number % AT_ONCE == 0:
                yield
        if due or self.beliefs.doubts:
            self.beliefs.forget(self._state.pods.keys())

    def judge_again(self, uid: str) -> None:
        """Judge a pod's annotation again: the leases that support it have changed, or its judgement becomes final."""
        pod = self._state.pods.get(uid)
        if pod is not None and pod.row >= 0 and text_of(pod) is not None:
            self.remove(pod, pod.row)
            if (before := self._before.get(uid)) is not None:
                self._before[uid] = before._replace(state=OTHER)
            self.add(pod, pod.row)

    def links(self, row: int) -> LinkClass | None:
        """How the devices of a node are linked; None if that is not known."""
        node = self._nodes.get(row)
        return node.hardware.links if node is not None and node.hardware is not None else None

    def uuids(self, row: int, ids: Iterable[int]) -> tuple[str, ...]:
        """The UUIDs of these devices; "" for a device that is not known."""
        node = self._nodes.get(row)
        return node.uuids(ids) if node is not None else ("",) * len(tuple(ids))

    def reserve(self, uid: str) -> Allocation | None:
        """Make the choice for a placed pod firm: the binding will write it. None if the pod has no devices."""
        return self.reserve_all((uid,))[0][0] if uid in self._allocations else None

    def reserve_all(self, uids: Iterable[str]) -> list[tuple[Allocation, LinkClass | None]]:
        """As `reserve` for placed pods that have devices, with the links of each node."""
        allocations, reserved, nodes, found = self._allocations, self._reserved, self._nodes, []
        for uid in uids:
            allocation = allocations[uid]
            if not allocation.is_firm:
                allocation = allocations[uid] = allocation.firm()
            reserved.keep(uid, allocation)
            hardware = nodes[allocation.row].hardware
            found.append((allocation, None if hardware is None else hardware.links))
        return found

    def assign(self, pod: PodInfo, ids: Iterable[int]) -> Allocation:
        """Give a placed pod exactly these devices, even if other pods have them; for scheduling maps. The allocation is
        firm.
        """
        row = pod.row
        node = self.node_at(row)
        self._release(pod.uid, node)
        wanted = tuple(sorted(set(ids)))
        allocation = Allocation(row, wanted, node.uuids(wanted), "Explicit", is_firm=True)
        node.pods[pod.uid] = pod
        self._hold(pod.uid, node, allocation)
        self._reserved.keep(pod.uid, allocation)
        self._publisher.taken(row, node)
        return allocation

    def move(self, pod: PodInfo, ids: Iterable[int]) -> Allocation | None:
        """Give a placed pod these devices instead of its own. Returns None, and the pod keeps its own, if they lack
        room.

        MIG instances cannot be moved: device ids do not name them.
        """
        found, want = self._allocations.get(pod.uid), self.wants.of(pod)
        if found is None or found.exclusivity == "MIG" or not isinstance(want, Want):
            return None
        node, chosen = self._nodes[found.row], tuple(sorted(ids))
        self._release(pod.uid, node)
        moved = node.charged(Allocation(found.row, chosen, node.uuids(chosen)), want)
        fits = len(chosen) == len(found.ids) and node.fits(moved)
        moved = msgspec.structs.replace(moved, is_firm=found.is_firm)
        self._hold(pod.uid, node, moved if fits else found)
        if fits and pod.uid in self._reserved:
            self._reserved.keep(pod.uid, moved)
        self._publisher.taken(found.row, node)
        return moved if fits else None

    def forget(self, uid: str) -> None:
        """Forget what the pod had before: it is about to be tried anew."""
        self._before.pop(uid, None)
        self._reserved.pop(uid, None)

    def forget_all(self, uids: Iterable[str]) -> None:
        """As `forget` for each."""
        for had in (self._before, self._reserved):
            for uid in had.keys() & uids:
                del had[uid]

    def meet(self, twins: TwinGpus) -> TwinGpus:
        """Tell of each change, and hear which GPUs ResourceClaims have, until the present configuration ends."""
        self._publisher.twins = twins
        lending = TwinLending(self._nodes, self._allocations, self._making_way, self._publisher)
        twins.add_gpus(lending, self._nodes, self._state)
        return twins

    # Where pods are

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on row now."""
        node = self._count(pod, row)
        if node is not None:
            self._publisher.taken(row, node)

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """These pods of one class are on these rows now: as `add` for one after the other, or none of them is."""
        try:
            self._publisher.all_taken(*self._count_all(pods, rows))
        except BaseException:
            for pod, row in zip(reversed(pods), reversed(rows), strict=True):
                self.remove(pod, row)  # which ignores those that were not counted yet
            raise

    def _count_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> tuple[list[int], list[NodeDevices]]:
        """As `_count` for one after the other; the rows on which other devices are in use now, and their nodes."""
        want, changed, counted = self.wants.of(pods[0]), list[int](), list[NodeDevices]()
        if not isinstance(want, Want) or want.exclusivity != "Exclusive":
            found = {row: node for pod, row in zip(pods, rows, strict=True) if (node := self._count(pod, row))}
            return [*found], [*found.values()]
        whole, is_plain = WholeDevices(want, self.tables, pods[0].scheduler_name), not pods[0].annotations
        allocations, nodes, uids = self._allocations, self._nodes, [pod.uid for pod in pods]
        known = {uid for had in (self._before, self._reserved, allocations) for uid in had.keys() & uids}
        for uid, pod, row in zip(uids, pods, rows, strict=True):
            taken, node = None, nodes.get(row)
            if node is not None and uid not in known and ((is_plain and not pod.annotations) or self._wants(pod, want)):
                taken = whole.take(uid, node, row)
            if node is None or taken is None:
                node = self._count(pod, row)
            else:
                allocations[uid], node.pods[uid] = taken, pod
            if node is not None:
                changed.append(row)
                counted.append(node)
        return changed, counted

    def _wants(self, pod: PodInfo, want: Want) -> bool:
        """Whether a pod that has no devices in its annotations has this want."""
        return text_of(pod) is None and self.wants.of(pod) is want

    def _count(self, pod: PodInfo, row: int) -> NodeDevices | None:
        """Count the devices of a pod that is on row now; returns the node if other devices are in use there now."""
        before = self._before.get(pod.uid)
        if before is not None:  # when this step is undone, what the pod has now takes its place
            self._state.after_undo(self, partial(self._before.keep, pod.uid, before))
        if before is not None and before.row == row and before.pod() is pod and before.state == self.node_at(row).state:
            return self._put_back(pod, before)
        text, want = text_of(pod), self.wants.of(pod)
        if isinstance(want, WantProblem):
            if text is None:
                return None
            self._late.wait(pod)
        if text is None and want is None:
            return None
        node = self.node_at(row)
        node.pods[pod.uid] = pod
        if (allocation := self._allocate(pod, want, text, row, node)) is None:
            return None
        self._hold(pod.uid, node, allocation)
        if allocation.is_firm:
            self._making_way.make(pod.uid, allocation, node, row)
        return node

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on row."""
        node = self._nodes.get(row)
        if node is None or node.pods.pop(pod.uid, None) is None:
            return
        self._late.forget(pod)
        guesses = self._making_way.leave(pod.uid, node)
        released = self._release(pod.uid, node)
        self._making_way.put_back(guesses, node)
        self._before.keep(pod.uid, Before(weakref.ref(pod), row, released, node.state, bool(guesses)))
        if released is not None:
            self._publisher.taken(row, node)

    def counts_alike(self, known: PodInfo, newer: PodInfo) -> bool:
        """Whether the newer record says that the pod has the devices that this scheduler has given it: nearly each pod
        says so once, when it is bound.
        """
        uid, node = known.uid, self._nodes.get(known.row)
        has, text = self._allocations.get(uid), text_of(newer)
        if has is None or node is None or text is None or uid not in node.pods:
            return False
        if not is_given(text, newer, has, node, self.beliefs) or isinstance(self.wants.of(newer), WantProblem):
            return False
        if self._making_way.concerns(uid, has, node):
            return False
        del node.pods[uid]  # the newer record goes to the end
        node.pods[uid] = newer
        self._late.forget(known)
        self._reserved.pop(uid, None)
        self.beliefs.trust(newer, has.ids)
        return True

    def _put_back(self, pod: PodInfo, before: Before) -> NodeDevices | None:
        """Undo the removal: the pod gets the devices that it had, even if its claim has changed since; as `_count`."""
        node = self.node_at(before.row)
        node.pods[pod.uid] = pod
        if text_of(pod) is not None and isinstance(self.wants.of(pod), WantProblem):
            self._late.wait(pod)
        if before.allocation is None:
            return None
        self._hold(pod.uid, node, before.allocation)
        if before.gave_way:
            self._making_way.make(pod.uid, before.allocation, node, before.row)
        return node

    def _count_anew(self, pod: PodInfo) -> None:
        if pod.row >= 0:
            self.remove(pod, pod.row)
            self.forget(pod.uid)  # its earlier allocation was made without its claim
            self.add(pod, pod.row)

    # Nodes

    def node_at(self, row: int) -> NodeDevices:
        """The devices of a row; empty ones if the row is new."""
        node = self._nodes.get(row)
        if node is None:
            node = self._nodes[row] = NodeDevices()
            if row >= self.columns.capacity:
                self.columns.grow(row + 1)
        return node

    def vacate(self, row: int) -> None:
        """The node of a row was removed; no pod is on it any more."""
        node = self._nodes[row] = NodeDevices()
        self._publisher.hardware(row, node, self.reports.has(row))

    def settle(self, row: int, node: NodeDevices) -> None:
        """The hardware has changed: firm allocations stay, and guessed ones are chosen again."""
        node.clear()
        had = {uid: self._allocations.pop(uid, None) for uid in node.pods}
        firm = {uid: a for uid, a in had.items() if a is not None and a.is_firm and text_of(node.pods[uid]) is None}
        for uid, allocation in firm.items():
            want = self.wants.of(node.pods[uid])
            self._hold(uid, node, node.charged(allocation, want if isinstance(want, Want) else None))
        for uid, pod in sorted(node.pods.items(), key=lambda each: text_of(each[1]) is None):
            want, text = self.wants.of(pod), text_of(pod)
            asks = uid not in firm and (text is not None or isinstance(want, Want))
            if asks and (found := self._allocate(pod, want, text, row, node)) is not None:
                self._hold(uid, node, found)
        self._publisher.hardware(row, node, self.reports.has(row))

    # Allocations

    def _allocate(
        self, pod: PodInfo, want: Want | WantProblem | None, text: str | None, row: int, node: NodeDevices
    ) -> Allocation | None:
        before, reserved = self._before.get(pod.uid), self._reserved.get(pod.uid)
        if text is None and reserved is not None and reserved.row == row:
            return reserved
        if text is not None:
            self._reserved.pop(pod.uid, None)
            had = before.allocation if before is not None and before.row == row else None
            written = allocation_in(text, pod, want, row, node, self._allocations, had, self.beliefs)
            if written is not None:
                return written
            want = want if isinstance(want, Want) else plain_want(pod)
            before = None  # the annotation is not believed: count as many devices as the pod asks for
        if before is not None and before.row == row:
            if before.state == node.state:
                return before.allocation
            if before.allocation is not None and before.allocation.is_firm and node.fits(before.allocation):
                return before.allocation
        if not isinstance(want, Want):
            return None
        chosen = node.choose(want, row, self.tables, pod.scheduler_name)
        return chosen or (node.choose_anyway(want, row) if pod.node_name else None)

    def _hold(self, uid: str, node: NodeDevices, allocation: Allocation) -> None:
        self._allocations[uid] = allocation
        node.hold(uid, allocation, 1)

    def _release(self, uid: str, node: NodeDevices) -> Allocation | None:
        allocation = self._allocations.pop(uid, None)
        if allocation is not None:
            node.hold(uid, allocation, -1)
        return allocation
