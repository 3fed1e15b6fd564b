"""Takes in every event of pods, leases, claims and nodes, in order, and notes each moment at which a rule is broken.

The judge knows the workloads and the nodes, and nothing of a scheduler. It does no I/O, and time is an argument.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline_e2e.day.fabric import Fabric
from gangline_e2e.day.fitting import Floor
from gangline_e2e.day.ledger import Holding, Ledger, Locks
from gangline_e2e.day.progress import Progress
from gangline_e2e.day.sight import Claim, Lease, Node, Pod
from gangline_e2e.day.waiting import Promise, Waiting
from gangline_e2e.day.workload import PRIORITIES, Workload
from gangline_e2e.gangs import LEAF, SPINE

DELETED = "DELETED"
MOST_FAULTS = 200
"""At most this many faults are kept: one mistake can repeat itself with every event."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long, in seconds, states may last that are wrong in the end.

    Each time limit counts only if enough has happened meanwhile; otherwise the machine is slow, not the scheduler.
    """

    phase: float = 30.0
    """The longest time between two pods of a gang that get nodes or are evicted, with time for a new leader in between.
    """
    passed: int = 200
    """`phase` counts only if so many pods got a node meanwhile. A gang that is in part at the end is a fault anyway.
    """
    patience: float = 60.0
    """The longest time for which a workload waits although it fits."""
    locked: float = 60.0
    """For how long the locks of a leader that has not released its Lease stay, so `patience` does not count."""
    overtaken: int = 1000
    """`patience` counts only if so many workloads that come after the waiting one started meanwhile."""
    late: float = 15.0
    """The longest time after the deletion of a node in which pods may still be bound to it."""
    bound: int = 200
    """`late` counts only if so many workloads started meanwhile."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the cluster at one moment: GPUs in use, GPUs of existing nodes, and waiting pods."""

    now: float
    held: float
    present: int
    waiting: int


class _Start(NamedTuple):
    """When a workload got its first node, its priority, and when it was complete."""

    now: float
    value: int
    complete_s: float


class Judge:
    """What has happened on a cluster so far; ``faults`` is empty as long as no rule was broken."""

    def __init__(self, fabric: Fabric, limits: Limits | None = None) -> None:
        self.fabric = fabric
        self.limits = limits or Limits()
        self.floor = floor_of(fabric)
        self.ledger = Ledger([fabric.name(number) for number in range(fabric.nodes)], fabric.gpus)
        self.locks = Locks()
        self.waiting = Waiting(self.floor)
        self.progress: dict[str, Progress] = {}
        """Workloads that were submitted and are not forgotten, by name."""
        self.counts: Counter[str] = Counter()
        """How many events of each kind came, and how many pods were evicted or lost."""
        self.waits: dict[str, list[float]] = defaultdict(list)
        """Seconds from the creation of each pod until it got a node, by kind of workload."""
        self.bindings: list[float] = []
        """When each pod got its node."""
        self.phases: dict[str, float] = {}
        """Seconds from the first pod on a node to the last, by gang."""
        self.samples: list[Sample] = []
        self.settled: list[str] = []
        """Names of workloads that have ended or have to start anew; the player removes those that it has handled."""
        self.orphans: list[str] = []
        """Names of pods on deleted nodes; the player removes those that it has handled."""
        self.lost: set[str] = set()
        """Names of nodes that existed once and were deleted."""
        self._pods: dict[str, Pod] = {}
        """The last seen state of each pod, by UID."""
        self._allocated: dict[str, set[tuple[str, tuple[int, ...]]]] = defaultdict(set)
        """For each claim the node and devices that its pods have had."""
        self._claimed: dict[str, set[tuple[str, tuple[int, ...]]]] = defaultdict(set)
        """For each claim the node and devices that its status has named."""
        self._starts: list[_Start] = []
        """The start of each workload that has a node, in the order of time."""
        self._left: dict[str, float] = {}
        """When each deleted node was deleted."""
        self._promises: dict[str, Promise] = {}
        self._patient_from = -math.inf
        """Until when locks of a leader that has not released its Lease may be in the way."""
        self._faults: list[str] = []
        self._told: set[str] = set()

    # What happens

    def hand_over(self, now: float) -> None:
        """A leader leads whose predecessor has not released the Lease."""
        self._patient_from = now + self.limits.locked

    def submit(self, workload: Workload) -> None:
        """A workload is about to be submitted."""
        self.progress[workload.name] = Progress(workload)

    def withdraw(self, name: str) -> None:
        """The owner of a workload deletes it, or what is left of it."""
        self.progress[name].withdrawn = True

    def node(self, event: str, node: Node, now: float) -> None:
        """A node was added, has changed or was deleted."""
        self.counts["node events"] += 1
        name = node.metadata.name
        is_there = event != DELETED
        self.ledger.there[self.ledger.row[name]] = is_there
        if is_there:
            self._left.pop(name, None)
            return
        self._left[name] = now
        self.lost.add(name)
        for holding in self.ledger.on(name):
            self._orphan(self._pods[holding.uid])

    def lease(self, event: str, lease: Lease, now: float) -> None:
        """A lease was written or deleted."""
        self.counts["lease events"] += 1
        holders = {} if event == DELETED else lease.holders()
        self.locks.note(lease.metadata.name, holders, lease.metadata.revision)

    def claim(self, event: str, claim: Claim, now: float) -> None:
        """A claim was written or deleted."""
        self.counts["claim events"] += 1
        if claim.status.phase == "Bound":
            self._claimed[claim.metadata.name].add((claim.status.node_name, claim.status.gpu_ids))

    def pod(self, event: str, pod: Pod, now: float) -> None:
        """A pod was written or deleted."""
        self.counts["pod events"] += 1
        uid, known = pod.metadata.uid, self.progress.get(pod.workload)
        if known is None:
            self._fault(f"{pod.metadata.name} is of no workload")
            return
        before = self._pods.get(uid)
        self._pods[uid] = pod
        known.see(uid, now)
        if pod.metadata.deletion_timestamp is not None:
            known.leaving.add(uid)
        if pod.spec.node_name and not (before and before.spec.node_name):
            self._bound(pod, known, now)
        elif before and before.spec.node_name != pod.spec.node_name:
            self._fault(f"{pod.metadata.name} was moved from {before.spec.node_name} to {pod.spec.node_name}")
        if pod.has_ended and uid not in known.ended:
            self.ledger.give_back(uid, pod.metadata.revision)
            known.end(uid)
            self.counts["pods ended"] += 1
        self._promise(pod, known)
        if event == DELETED:
            self._gone(pod, known, now)
        if known.was_evicted or (known.has_ended and not known.withdrawn):
            self.settled.append(pod.workload)

    def look(self, now: float) -> None:
        """Judge the states that last; call this about every second."""
        waiting = [each for each in self.progress.values() if each.is_waiting]
        self.waiting.look(waiting, self.ledger, self._promises, now)
        counted = {name: max(since, self._patient_from) for name, since in self.waiting.since.items()}
        impatient = {name: since for name, since in counted.items() if now - since > self.limits.patience}
        starts = np.array(self._starts) if impatient else None
        for name, since in impatient.items():
            overtaken = _overtaken(self.progress[name], since, starts)
            if overtaken > self.limits.overtaken:
                said = f"for {now - since:.0f} s, while {overtaken} after it started: {self.progress[name].workload}"
                self._fault(f"{name} waits though it fits", said)
        for each in self.progress.values():
            late = now - each.moved_s > self.limits.phase
            if late and self._bound_since(each.moved_s) >= self.limits.passed and (broken := _broken(each)):
                self._fault(*broken)
        pods = sum(each.workload.size for each in waiting)
        self.samples.append(Sample(now, self.ledger.held, self.ledger.present, pods))

    # What is known

    @property
    def faults(self) -> list[str]:
        """What was wrong at some time, one line each."""
        return [*self.ledger.faults[:MOST_FAULTS], *self._faults]

    def unstarted(self) -> list[str]:
        """Workloads that could start and have not, as a whole."""
        return [
            name
            for name, each in self.progress.items()
            if each.workload.is_possible and each.whole_s is None and not each.withdrawn
        ]

    def backlog(self) -> int:
        """How many pods wait although each would fit if no other pod waited; as of the last look."""
        known = (self.progress.get(name) for name in self.waiting.alone)
        return sum(each.workload.size for each in known if each is not None and each.is_waiting)

    def final_faults(self) -> list[str]:
        """The faults that count when all has come to rest: gangs in part, and locks and claims that differ from the
        pods.
        """
        holdings = [*self.ledger.past, *self.ledger.now.values()]
        found = self.locks.faults(holdings, frozenset(self.lost))
        found += [": ".join(broken) for each in self.progress.values() if (broken := _broken(each))]
        for name, said in self._claimed.items():
            if wrong := said - self._allocated[name]:
                found.append(f"claim {name} has said {sorted(wrong)}, and its pods had {sorted(self._allocated[name])}")
        return found

    def forget(self, name: str) -> None:
        """Nothing more will happen to a workload."""
        for uid in self.progress.pop(name).came:
            self._pods.pop(uid, None)

    def is_gone(self, name: str) -> bool:
        """Whether no pod of a workload is there any more."""
        return not any(uid in self._pods for uid in self.progress[name].came)

    # One step

    def _bound(self, pod: Pod, known: Progress, now: float) -> None:
        uid, name, node = pod.metadata.uid, pod.metadata.name, pod.spec.node_name
        workload = known.workload
        row = self.ledger.row.get(node)
        if row is None:
            self._fault(f"{name} was bound to {node}, which there never was")
            return
        ids = pod.devices
        self.ledger.take(Holding(uid, name, node, ids, workload.milli, pod.metadata.revision))
        for fault in known.bind(uid, row, pod.part, self.floor, now):
            self._fault(fault)
        if len(set(ids)) != workload.gpus:
            self._fault(f"{name} on {node} wants {workload.gpus} GPUs and has {ids}")
        if workload.kind == "claim" and ids and max(ids) - min(ids) != len(ids) - 1:
            self._fault(f"{name} wants GPUs in a row and has {ids}")
        if pod.claim:
            self._allocated[pod.claim].add((node, ids))
        if not self.ledger.there[row]:
            gone_s = self._left.get(node, now)
            if now - gone_s > self.limits.late and self._started_since(gone_s) > self.limits.bound:
                self._fault(f"{name} was bound to {node} {now - gone_s:.0f} s after it had gone")
            self._orphan(pod)
        self.bindings.append(now)
        if known.bound == 1:
            self._starts.append(_Start(now, workload.value, now if known.complete_s is None else known.complete_s))
        self.waits[workload.kind].append(now - known.came[uid])
        if workload.kind == "gang" and known.whole_s is not None:
            self.phases[workload.name] = known.phase()

    def _started_since(self, moment: float) -> int:
        """How many workloads have got a first node since; a large gang counts once."""
        return len(self._starts) - bisect_left(self._starts, moment, key=lambda start: start.now)

    def _bound_since(self, moment: float) -> int:
        """How many pods have got a node since."""
        return len(self.bindings) - bisect_left(self.bindings, moment)

    def _promise(self, pod: Pod, known: Progress) -> None:
        """Note the nomination of a pod without a node, or that there is none."""
        uid, node = pod.metadata.uid, pod.status.nominated_node_name
        if node in self.ledger.row and not pod.spec.node_name:
            asked = known.workload
            self._promises[uid] = Promise(self.ledger.row[node], asked.gpus, asked.name, asked.value)
        else:
            self._promises.pop(uid, None)

    def _gone(self, pod: Pod, known: Progress, now: float) -> None:
        uid = pod.metadata.uid
        self.ledger.give_back(uid, pod.metadata.revision)
        self._promises.pop(uid, None)
        had_ended = uid in known.ended
        known.leave(uid, now)
        known.deleted.add(pod.metadata.name)
        self._pods.pop(uid, None)
        if had_ended or known.withdrawn or known.excused:
            return
        self.counts["pods evicted"] += 1
        if known.workload.value == max(PRIORITIES.values()):
            self._fault(f"{pod.metadata.name} was evicted, and nothing has a higher priority")

    def _orphan(self, pod: Pod) -> None:
        self.progress[pod.workload].excused = True
        self.orphans.append(pod.metadata.name)
        self.settled.append(pod.workload)
        self.counts["pods lost with their nodes"] += 1

    def _fault(self, what: str, more: str = "") -> None:
        """Note a fault; the same one counts once, however often it is seen."""
        if what not in self._told and len(self._told) < MOST_FAULTS:
            self._told.add(what)
            self._faults.append(f"{what} {more}".strip())


def _overtaken(waits: Progress, since: float, starts: NDArray[np.float64] | None) -> int:
    """How many workloads that come after one have started since: those of a lower priority, or complete later."""
    if starts is None or not len(starts) or waits.complete_s is None:
        return 0
    _, values, complete = starts[np.searchsorted(starts[:, 0], since) :].T
    own = waits.workload.value
    return int(np.count_nonzero((values < own) | ((values == own) & (complete > waits.complete_s))))


def _broken(gang: Progress) -> tuple[str, str] | None:
    """What is wrong with a gang that is placed or evicted in part, and the numbers of its pods; None if it is not."""
    if gang.is_partial:
        return f"gang {gang.workload.name} is placed in part", f"{gang.bound} of {gang.workload.size} pods have a node"
    if gang.is_torn:
        said = f"{len(gang.gone)} of {gang.workload.size} pods are gone, the others are not"
        return f"gang {gang.workload.name} was evicted in part", said
    return None


def floor_of(fabric: Fabric) -> Floor:
    """Where the nodes of a fabric are."""
    numbers: Iterable[int] = range(fabric.nodes)
    leaves = np.array([fabric.leaf(number) for number in numbers])
    spines = np.array([fabric.spine(number) for number in numbers])
    return Floor({LEAF: leaves, SPINE: spines})
