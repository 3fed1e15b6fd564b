"""The used amounts of each node, as columns: GPUs in thousandths, one column for each device, CPU and memory.

Rules:
- A pod takes the devices that the scheduler has chosen for it. If the scheduler has chosen none, the pod takes the
  first free devices: such a pod has whole GPUs, and all whole GPUs are alike.
- The free part of a GPU is a *fragment* for a kind of pods if its node has too little of some resource for one more
  such pod, or if the free part itself is too small. Fragmentation is the fraction of all GPUs that are fragments,
  averaged over the kinds by their numbers of pods in the trace: the measure of Weng et al., "Beware of Fragmentation",
  USENIX ATC'23, over the pods that ask for GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from gangline.replay.trace import WHOLE, TraceJob, TraceNode

MOST_KINDS = 32
"""Kinds of pods for which fragmentation is computed, at most: the most frequent ones."""


class PodAmounts(msgspec.Struct, frozen=True, eq=False):
    """The amounts that a pod uses, and the devices that it has."""

    row: int
    devices: tuple[int, ...]
    milli: int
    cpu: int
    memory: int


class NodeLedger:
    """The amounts of all nodes; rows as in the trace."""

    def __init__(self, nodes: Sequence[TraceNode], jobs: Iterable[TraceJob]) -> None:
        gpus = np.array([node.gpus for node in nodes], dtype=np.int64)
        self._rows = {node.name: row for row, node in enumerate(nodes)}
        self._present = np.arange(max(gpus, default=0)) < gpus[:, None]
        # Lists, because a pod changes single numbers: in an array that takes three times as long.
        self._free = np.where(self._present, WHOLE, 0).tolist()
        self._cpu = [node.cpu for node in nodes]
        self._memory = [node.memory for node in nodes]
        self._pods = [0] * len(nodes)
        self.total = np.array([gpus.sum() * WHOLE, sum(self._cpu), sum(self._memory), len(nodes)], dtype=np.float64)
        """Thousandths of GPUs, milli-CPU, MiB, nodes."""
        self.used = [0, 0, 0, 0]
        """The used amounts, in the units of `total`; a node with a pod counts as used."""
        self._kinds = _kinds(jobs, [node.model for node in nodes])

    def take(self, node: str, job: TraceJob, ids: Sequence[int], milli: int) -> PodAmounts:
        """Count a pod of the job on the node, with these devices if any are named, and `milli` thousandths of each."""
        row = self._rows[node]
        if job.gpus and not ids:
            ids = [id for id, free in enumerate(self._free[row]) if free >= milli]
        taken = PodAmounts(row, tuple(ids[: job.gpus]), milli, job.cpu, job.memory)
        self._add(taken, -1)
        return taken

    def give_back(self, taken: PodAmounts) -> None:
        """Count the pod no longer."""
        self._add(taken, 1)

    def _add(self, taken: PodAmounts, sign: int) -> None:
        row, devices, used = taken.row, self._free[taken.row], self.used
        for id in taken.devices:
            devices[id] += sign * taken.milli
        self._cpu[row] += sign * taken.cpu
        self._memory[row] += sign * taken.memory
        before = self._pods[row] > 0
        self._pods[row] -= sign
        used[0] -= sign * len(taken.devices) * taken.milli
        used[1] -= sign * taken.cpu
        used[2] -= sign * taken.memory
        used[3] += (self._pods[row] > 0) - before

    def fragmentation(self) -> float:
        """The fraction of all GPUs that are fragments, 0..1."""
        if not self.total[0] or not self._kinds:
            return 0.0
        devices, cpu, memory = np.array(self._free), np.array(self._cpu), np.array(self._memory)
        free, lost = float(devices.sum()), 0.0
        for kind in self._kinds:  # at most MOST_KINDS
            fits = (devices >= kind.milli) & self._present
            room = fits.sum(axis=1) >= kind.gpus
            room &= (cpu >= kind.cpu) & (memory >= kind.memory) & kind.rows
            lost += kind.share * (free - float(np.where(fits, devices, 0)[room].sum()))
        return lost / float(self.total[0])


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    share: float
    gpus: int
    milli: int
    cpu: int
    memory: int
    rows: np.ndarray
    """The rows of the nodes with a model of GPUs that the pods accept."""


def _kinds(jobs: Iterable[TraceJob], models: Sequence[str]) -> list[_Kind]:
    counts: Counter[tuple[int, int, int, int, tuple[str, ...]]] = Counter()
    for job in jobs:
        if job.gpus:
            counts[job.gpus, job.milli, job.cpu, job.memory, job.models] += job.pods
    most = counts.most_common(MOST_KINDS)
    total = sum(count for _, count in most)
    column = np.array(models, dtype=np.str_)
    return [
        _Kind(
            count / total, gpus, milli, cpu, memory, np.isin(column, wanted) if wanted else np.ones(len(models), bool)
        )
        for (gpus, milli, cpu, memory, wanted), count in most
    ]
