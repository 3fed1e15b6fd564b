"""Takes from the columns and the queue what the picture shows, in the thread that owns them, a bounded part at a time.

What is taken are copies, and records that never change: another thread draws them. The log of changes says which rows
to take again. Some other rows are taken each time, too, in turn: for changes that no log tells of, as of pod groups.
A picture begins with every row, and has the queue as soon as all of them are taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.api.outlook import ExpectedStart
from gangline.api.plugin import Clock
from gangline.api.pod_group import Membership, Problem
from gangline.groups import Groups
from gangline.kube.resources import GPU_NODE_STATUSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from gangline.model import Node
from gangline.overview.gpu_use import GPUS, asked_gpus, requested_gpus
from gangline.page.expecting import Expecting, started
from gangline.page.history import ClusterHistory, PastSample
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.taints import TaintKey
from gangline.state.topology import Domains, Topology
from gangline.wire.custom_resources import ALLOCATED

MOST_ROWS = 256
"""Rows of nodes that are taken at a time, at most."""
IN_TURN = 32
"""Rows among these that are taken in turn, without a known change."""
MOST_UNITS = 1000
"""Units of the queue that are shown, at most: those that have waited longest."""
MOST_PODS = 256
"""Pods that are shown on one node."""
MOST_NAME = 253
"""Characters of the name and of the kind of a workload, at most: a pod may name an owner of any length."""


class Workload(NamedTuple):
    """What a pod belongs to: its group, else its topmost controller, else the pod itself."""

    namespace: str
    name: str
    kind: str
    """The dialect of a group, or the kind of the controller."""
    min_member: int = 0
    """The number of members that a group needs; 0 if the workload is no group."""


class TakenPod(NamedTuple):
    """A pod on its node."""

    pod: PodInfo
    workload: Workload
    started: int
    """When the pod started, in seconds since 1970; 0 if it has not started."""
    ends: int
    """When the pod ends at the latest, in seconds since 1970; 0 if that is not known."""


class TakenRow(NamedTuple):
    """A node, or the row of a deleted one."""

    row: int
    name: str
    node: Node | None
    is_cordoned: bool
    taints: tuple[TaintKey, ...]
    gpus: int
    """The number of GPUs that the node offers."""
    domains: tuple[str, ...]
    """The names of the node's domains, the widest level first."""
    pods: Sequence[TakenPod]
    others: int
    """The number of pods on the node that are not in `pods`."""


@dataclass(frozen=True, slots=True)
class TakenUnit:
    """A unit of the queue."""

    uid: str
    workload: Workload
    place: str
    message: str
    pods: int
    gpus: int
    attempts: int
    since: int
    """When the unit was first queued, in seconds since 1970."""
    rejected_by: tuple[str, ...]
    expected: ExpectedStart | None = None
    """The room that is kept for the unit; None if there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class TakenPart:
    """One taken part of the columns and the queue."""

    rows: Sequence[TakenRow]
    is_all: bool
    """Whether no row is left that is known to have changed."""
    levels: tuple[str, ...]
    reports: Sequence[Any] | None
    """Every GpuNodeStatus; None if they are as before."""
    claims: Sequence[Any] | None
    """Every ResourceClaim; None if they are as before."""
    slices: Sequence[Any] | None
    """Every ResourceSlice; None if they are as before."""
    units: Sequence[TakenUnit] | None
    """None before every row has been taken once."""
    counts: dict[str, int]
    """Waiting pods in each place of the queue."""
    leads: bool
    history: Sequence[PastSample]
    """The samples that are new."""
    now: int
    """Seconds since 1970."""
    seconds: float
    """CPU time that the taking took."""


class Taker:
    """Takes one part after the other, in the thread that owns the columns. Each picture begins with a new Taker."""

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        groups: Groups,
        topology: Callable[[], Topology | None],
        leads: Callable[[], bool],
        clock: Clock,
        expecting: Expecting | None = None,
        history: ClusterHistory | None = None,
    ) -> None:
        """Without `history` the past is not shown."""
        self._cache = cache
        self._queue = queue
        self._groups = groups
        self._topology = topology
        self._leads = leads
        self._clock = clock
        self._expecting = expecting or Expecting()
        self._history = history
        self._samples = 0
        self._todo: dict[int, None] = {}
        self._position = -1
        self._levels: tuple[str, ...] = ()
        self._turn = 0
        self._has_begun = False
        """Whether every row has been taken."""
        self._versions: dict[str, int] = {}
        """By kind: the version of the objects that were taken last."""
        self._units: dict[str, tuple[object, TakenUnit]] = {}
        """By UID: the values from which a unit was taken last, and the taken unit."""

    def take(self, most: int = MOST_ROWS) -> TakenPart:
        """The next part, with at most `most` rows of nodes."""
        began = time.thread_time()
        topology = self._topology()
        switches = topology.switches() if topology is not None else []
        self._note_changes(tuple(level.level for level in switches))
        rows = list(islice(self._todo, most))
        for row in rows:
            del self._todo[row]
        size = self._cache.nodes.size
        turn = [(self._turn + n) % size for n in range(min(IN_TURN, size))] if self._has_begun else []
        self._turn = (self._turn + len(turn)) % max(1, size)
        taken = self._rows([row for row in dict.fromkeys((*rows, *turn)) if row < size], switches)
        self._has_begun = self._has_begun or not self._todo
        return TakenPart(
            taken,
            not self._todo,
            self._levels,
            self._changed(GPU_NODE_STATUSES),
            self._changed(RESOURCE_CLAIMS),
            self._changed(RESOURCE_SLICES),
            self._all_units() if self._has_begun else None,
            self._queue.counts(),
            self._leads(),
            self._new_samples(),
            round(self._clock.now()),
            time.thread_time() - began,
        )

    def _note_changes(self, levels: tuple[str, ...]) -> None:
        nodes = self._cache.nodes
        changed = nodes.changes.since(self._position, nodes.size) if self._position >= 0 else None
        if changed is None or levels != self._levels:
            self._todo = dict.fromkeys(range(nodes.size))
        else:
            self._todo.update(dict.fromkeys(changed[0].tolist()))
        self._position, self._levels = nodes.changes.position, levels

    def _new_samples(self) -> Sequence[PastSample]:
        if self._history is None:
            return ()
        before, self._samples = self._samples, self._history.taken
        return self._history.since(before)

    def _changed(self, kind: Resource[Any]) -> Sequence[Any] | None:
        """All objects of a kind; None if they are as before."""
        store = self._cache.store(kind)
        before, self._versions[kind.plural] = self._versions.get(kind.plural), store.version
        return None if before == store.version else list(store)

    def _rows(self, rows: Sequence[int], switches: Sequence[Domains]) -> list[TakenRow]:
        """The picture of each of these rows; the columns are read for all rows at once."""
        nodes = self._cache.nodes
        at = np.array(rows, dtype=np.intp)
        resources = np.array(nodes.axis.places(GPUS), dtype=np.intp)
        gpus = nodes.allocatable[np.ix_(resources, at)].sum(axis=0).tolist()
        cordoned, taints = nodes.unschedulable[at].tolist(), nodes.taints[at].tolist()
        domains = list(zip(*[_names(level, at) for level in switches], strict=True)) or [()] * len(rows)
        end_of = self._expecting.ends()
        return [
            TakenRow(
                row,
                nodes.names[row],
                nodes.objects[row],
                is_cordoned,
                nodes.taint_sets[taint],
                number,
                mine,
                pods,
                others,
            )
            for row, is_cordoned, taint, number, mine in zip(rows, cordoned, taints, gpus, domains, strict=True)
            for pods, others in [self._pods(row, end_of)]
        ]

    def _pods(self, row: int, end_of: Callable[[PodInfo], int]) -> tuple[Sequence[TakenPod], int]:
        """The pods of a row that are drawn, and the number of the others."""
        there = self._cache.nodes.pods_on[row].values()
        shown = ((pod, workload) for pod in there if (workload := self._shown(pod)) is not None)
        pods = [TakenPod(*each, started(each[0]), end_of(each[0])) for each in islice(shown, MOST_PODS)]
        return pods, len(there) - len(pods)

    def _shown(self, pod: PodInfo) -> Workload | None:
        """The workload of a pod if the pod is drawn: if it has devices, may have some, or is in a group. Else None."""
        found = self._groups.of(pod)
        return None if found is None and not _may_have_gpus(pod) else self._workload(pod, found)

    def _workload(self, pod: PodInfo, found: Membership | Problem | None) -> Workload:
        if isinstance(found, Membership):
            group = found.group
            return Workload(pod.namespace, group.name[:MOST_NAME], group.dialect, group.min_member)
        if found is not None:
            dialect, _, name = found.key.partition(":")
            return Workload(pod.namespace, name.removeprefix(f"{pod.namespace}/")[:MOST_NAME], dialect)
        top = self._groups.owners.top(pod)
        return Workload(pod.namespace, top.name[:MOST_NAME], top.kind[:MOST_NAME])

    def _all_units(self) -> list[TakenUnit]:
        before, self._units = self._units, {}
        starts = self._expecting.starts()
        epoch = self._clock.now() - self._clock.monotonic()
        for unit in islice(self._queue, MOST_UNITS):
            expected = starts.get(unit.uid)
            stamp = (unit.place, unit.attempts, unit.message, len(unit.members) + len(unit.late), expected)
            known = before.get(unit.uid)
            fresh = known if known is not None and known[0] == stamp else (stamp, self._unit(unit, expected, epoch))
            self._units[unit.uid] = fresh
        return [unit for _, unit in self._units.values()]

    def _unit(self, unit: Unit, expected: ExpectedStart | None, epoch: float) -> TakenUnit:
        pods = unit.everybody()
        return TakenUnit(
            unit.uid,
            self._workload(pods[0], self._groups.of(pods[0])),
            unit.place.value,
            unit.message,
            len(pods),
            sum(asked_gpus(pod, self._cache) for pod in pods),
            unit.attempts,
            round(epoch + unit.added),
            tuple(sorted(unit.rejected_by)),
            expected,
        )


def _names(level: Domains, rows: NDArray[np.intp]) -> list[str]:
    """The name of each row's domain; "" for a row without one."""
    values = level.values
    return [values[id] if id >= 0 else "" for id in level.ids[rows].tolist()]


def _may_have_gpus(pod: PodInfo) -> bool:
    return bool(requested_gpus(pod) or ALLOCATED in pod.annotations or pod.spec.resource_claims or pod.extended_claim)
