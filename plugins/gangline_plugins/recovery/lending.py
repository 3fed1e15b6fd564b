"""Who may use spares until a gang needs them, and which pods of a lower priority a plan looks at.

Pods that may be evicted at once use spares: those of a low priority, and those whose runtime is short and bounded. A
pod of a low priority leaves any node that a gang of a higher priority needs. A pod with a bounded runtime leaves only
spares, and leaves them to a gang of its own priority too.

A plan looks at a bounded number of pods. So those come first that are in the domain of the gang's members, and then
domain by domain those that would leave the most GPUs.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from gangline import (
    BoolColumn,
    Changes,
    Handle,
    Int64Column,
    KeptColumns,
    NodeView,
    PodGroup,
    PodInfo,
    Rows,
    custom_resources,
    gpus_of,
)
from gangline_plugins.recovery.runtimes import Runtimes
from gangline_plugins.reservation.arguments import ReservationArgs
from gangline_plugins.reservation.lifetimes import Lifetimes

_KEPT_BYTES = 1 << 20
MOST_LOOKED_AT = 4096
"""At most this many pods that may have to leave are looked at for one plan."""


@dataclass(frozen=True, slots=True, eq=False)
class Seeker:
    """A gang that has lost members, and for which pods may have to leave."""

    group: PodGroup
    priority: int
    allowed: BoolColumn
    """The nodes to which its pods may come."""
    rows: Sequence[int]
    """The rows of its members, the lost ones too."""
    own: Container[str] = ()
    """The UIDs of its members."""

    @classmethod
    def of(cls, handle: Handle, group: PodGroup, priority: int, allowed: BoolColumn) -> Seeker:
        """The gang as it is now."""
        own = [pod for pod in handle.members(group.key) if pod.row >= 0]
        return cls(group, priority, allowed, [pod.row for pod in own], {pod.uid for pod in own})

    def takes_from(self, pod: PodInfo) -> bool:
        """Whether the pod may have to leave: it is no member, and does not end anyway."""
        return not pod.terminating and pod.uid not in self.own


class Lending:
    """Says who may use spares, and who leaves nodes to a gang that has lost members."""

    def __init__(
        self, handle: Handle, below_priority: int | None, below_runtime: float | None, most: int = MOST_LOOKED_AT
    ) -> None:
        """`below_runtime` is in seconds; `most` is how many pods are looked at for one plan."""
        self._most = most
        self._handle = handle
        self._below_priority = below_priority
        self._below_runtime = below_runtime
        self._lifetimes = Lifetimes(handle, ReservationArgs())
        self._runtimes = Runtimes(handle) if below_runtime is not None else None
        self._lower: KeptColumns[int, tuple[Int64Column, Int64Column]] = KeptColumns(self._count, _KEPT_BYTES)

    @property
    def any(self) -> bool:
        """Whether spares are lent at all."""
        return self._below_priority is not None or self._below_runtime is not None

    def takes(self, pod: PodInfo) -> bool:
        """Whether the pod may use spares until a gang needs them."""
        if self._below_priority is not None and pod.priority < self._below_priority:
            return True
        if self._below_runtime is None:
            return False
        if self._runtimes is not None and pod.row >= 0:
            self._runtimes.judged(pod)
        return self._lifetimes.longest(pod, pod.namespace) < self._below_runtime

    @property
    def changes(self) -> tuple[Changes, ...]:
        """The logs of changes after which `takes` may give another answer although pods and nodes are the same."""
        return () if self._runtimes is None else (self._runtimes.changes,)

    def leaving(self, seeker: Seeker, spares: BoolColumn) -> list[PodInfo]:
        """The pods that leave their nodes to a gang; `spares` marks the nodes that are spares now."""
        found: dict[str, PodInfo] = {}
        if self._below_priority is not None:
            found = {pod.uid: pod for pod in self.below(min(self._below_priority, seeker.priority), seeker)}
        if self._below_runtime is not None:
            nodes = self._handle.nodes
            for row in np.flatnonzero(spares & seeker.allowed).tolist():  # a few nodes: the spares
                pods = nodes.pods(row).values()
                found |= {pod.uid: pod for pod in pods if pod.priority <= seeker.priority and self.takes(pod)}
        return [pod for pod in found.values() if seeker.takes_from(pod)][: self._most]

    def below(self, priority: int, seeker: Seeker) -> list[PodInfo]:
        """Pods of a lower priority than this on nodes that the gang may use, a bounded number; none that end anyway."""
        nodes = self._handle.nodes
        counts, gpus = self._lower.of(priority, nodes)
        rows = np.flatnonzero(seeker.allowed & (counts > 0))
        if counts[rows].sum() > self._most:
            rows = self._best_first(seeker, rows, gpus)
            rows = rows[np.cumsum(counts[rows]) <= self._most]
        pods = (pod for row in rows.tolist() for pod in nodes.pods(row).values())
        return [pod for pod in pods if pod.priority < priority and seeker.takes_from(pod)]

    def _best_first(self, seeker: Seeker, rows: Rows, gpus: Int64Column) -> Rows:
        """The rows that matter most for a gang first; `gpus` has the GPUs of the pods that would leave each row."""
        nodes = self._handle.nodes
        free = nodes.allocatable(custom_resources.GPU) - nodes.requested(custom_resources.GPU) + gpus
        group = seeker.group
        named = (group.topology.required, *(part.topology.required for part in group.subgroups))
        level = self._handle.topology.find(next((each for each in named if each), ""))
        domains = level.ids if level is not None else np.arange(len(nodes), dtype=np.int32)
        own = domains[np.array(seeker.rows, dtype=np.intp)]
        room = np.bincount(domains[rows] + 1, weights=free[rows])  # 0 is for nodes without a domain
        order = np.lexsort((-free[rows], domains[rows], -room[domains[rows] + 1], ~np.isin(domains[rows], own)))
        best: Rows = rows[order]
        return best

    def _count(self, priority: int, nodes: NodeView) -> tuple[Int64Column, Int64Column]:
        """For each node how many pods on it are of a lower priority than this, and how many GPUs they have."""
        counts, gpus = np.zeros(len(nodes), dtype=np.int64), np.zeros(len(nodes), dtype=np.int64)
        for at in range(len(nodes)):  # all nodes once, and then each node that has changed
            lower = [pod for pod in nodes.pods(at).values() if pod.priority < priority]
            counts[at], gpus[at] = len(lower), sum(gpus_of(pod, self._handle.state) for pod in lower)
        return counts, gpus
