"""Spares: nodes that are kept free in each domain for gangs that lose members, and lent to pods of a low priority.

Of each domain of a level free nodes are spares: so many as the profile says, or all free nodes if there are fewer. A
node is free if no pod on it has GPUs, other than pods that leave it to a gang. Nodes with such pods come first, so that
these cost others no room; then the last ones in the order of the columns. Which nodes are spares follows from the
cluster as it is, so nothing is kept in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from gangline import BoolColumn, Handle, KeptColumns, NodeView, PodInfo, custom_resources
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.recovery.arguments import SparesArgs

log = logging.getLogger(__name__)
_KEPT_BYTES = 1 << 20
_MOST_LENT = 4096
"""At most this many pods that may have to leave are looked at for one plan."""


def pods_below(handle: Handle, priority: int) -> list[PodInfo]:
    """Pods on nodes of a lower priority than this, a bounded number of them; none that end anyway."""
    pods = (pod for pod in handle.state.pods.values() if pod.row >= 0 and pod.priority < priority)
    return [pod for pod, _ in zip(pods, range(_MOST_LENT), strict=False) if not pod.terminating]


class Spares:
    """Knows which nodes are spares now, and who may use them."""

    def __init__(self, handle: Handle, args: Sequence[SparesArgs], lent_below: int | None) -> None:
        self._handle = handle
        self._args = args
        self._lent_below = lent_below
        self._table = device_table(handle.state)
        self._lent_nodes: KeptColumns[int, tuple[BoolColumn]] = KeptColumns(self._are_lent, _KEPT_BYTES)
        self._unknown: set[str] = set()
        """The levels of which it was said that no node has them."""
        self.are_lifted = False
        """Whether a gang that has lost members is being planned for now."""

    @property
    def any(self) -> bool:
        """Whether nodes are kept from pods now."""
        return bool(self._args) and not self.are_lifted

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """In this block spares are as other nodes: a gang that has lost members is being planned for."""
        self.are_lifted = True
        try:
            yield
        finally:
            self.are_lifted = False

    def are_lent_to(self, pod: PodInfo) -> bool:
        """Whether the pod may use spares until a gang needs them."""
        return self._lent_below is not None and pod.priority < self._lent_below

    def lent(self) -> list[PodInfo]:
        """The pods that leave their nodes to a gang that has lost members; none if no spares are lent."""
        if not self._args or self._lent_below is None:
            return []
        return pods_below(self._handle, self._lent_below)

    def kept(self, usable: BoolColumn) -> BoolColumn:
        """The nodes that are spares, for all rows; `usable` marks the nodes to which pods may come."""
        nodes = self._handle.nodes
        gpus, used = nodes.allocatable(custom_resources.GPU), nodes.requested(custom_resources.GPU)
        free = (used == 0) & (self._table.columns.busy[nodes.index] == 0)
        lent = nodes.full(False)
        if self._lent_below is not None:
            (lent,) = self._lent_nodes.of(self._lent_below, nodes)
        free = usable & (gpus > 0) & (free | lent)
        kept = nodes.full(False)
        for each in self._args:
            level = self._handle.topology.find(each.level)
            if level is None:
                self._tell_unknown(each.level)
                continue
            rows = np.flatnonzero(free & (level.ids >= 0))[::-1]
            rows = rows[np.lexsort((~lent[rows], level.ids[rows]))]
            domains = level.ids[rows]
            rank = np.arange(len(rows)) - np.searchsorted(domains, domains)
            kept[rows[rank < each.nodes]] = True
        return kept

    def _are_lent(self, lent_below: int, nodes: NodeView) -> tuple[BoolColumn]:
        """Nodes on which pods of a lower priority have GPUs, and no other pods."""
        lent = np.zeros(len(nodes), dtype=np.bool_)
        for at in range(len(nodes)):  # all once, then those that have changed
            users = [pod.priority for pod in nodes.pods(at).values() if self._has_gpus(pod)]
            lent[at] = bool(users) and max(users) < lent_below
        return (lent,)

    def _has_gpus(self, pod: PodInfo) -> bool:
        return pod.cls.requests.real.get(custom_resources.GPU, 0) > 0 or self._table.allocation(pod.uid) is not None

    def _tell_unknown(self, level: str) -> None:
        if level not in self._unknown and self._handle.nodes.alive.any():
            self._unknown.add(level)
            names = self._handle.topology.names()
            log.warning("Recovery keeps no spares of the level %s: no node has it; the levels are: %s", level, names)
