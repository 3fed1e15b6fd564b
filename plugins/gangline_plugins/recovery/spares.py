"""Spares: nodes that are kept free in each domain for gangs that lose members, and lent to pods that may be evicted.

Of each domain of a level free nodes are spares: so many as the profile says, or as have so many GPUs, or all free nodes
if there are fewer. A node is free if no pod on it has GPUs, other than pods that leave it to a gang. Nodes with such
pods come first, so that these cost others no room; then the last ones in the order of the columns. Which nodes are
spares follows from the cluster as it is, so nothing is kept in memory. Whole nodes are kept, also where GPUs are
counted: a lost member needs its GPUs on one node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from gangline import BoolColumn, Handle, KeptColumns, NodeView, PodInfo, custom_resources
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.recovery.arguments import SparesArgs
from gangline_plugins.recovery.lending import Lending, Seeker

log = logging.getLogger(__name__)
_KEPT_BYTES = 1 << 20


class Spares:
    """Knows which nodes are spares now, and who may use them."""

    def __init__(self, handle: Handle, args: Sequence[SparesArgs], lending: Lending) -> None:
        self._handle = handle
        self._args = args
        self._lending = lending
        self._table = device_table(handle.state)
        self._lent_nodes: KeptColumns[str, tuple[BoolColumn]] = KeptColumns(
            self._are_lent, _KEPT_BYTES, own=lending.changes
        )
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
        return self._lending.takes(pod)

    def lent(self, seeker: Seeker) -> Callable[[], Sequence[PodInfo]]:
        """Returns a function that lists the pods which leave their nodes to a gang; none if no spares are lent.

        The spares are those of now, so the function may be called later, while a plan has pods moved in a transaction.
        """
        if not self._args or not self._lending.any:
            return tuple
        return partial(self._lending.leaving, seeker, self.kept(seeker.allowed))

    def kept(self, usable: BoolColumn) -> BoolColumn:
        """The nodes that are spares, for all rows; `usable` marks the nodes to which pods may come."""
        nodes = self._handle.nodes
        gpus, used = nodes.allocatable(custom_resources.GPU), nodes.requested(custom_resources.GPU)
        free = (used == 0) & (self._table.columns.busy[nodes.index] == 0)
        lent = nodes.full(False)
        if self._lending.any:
            (lent,) = self._lent_nodes.of("", nodes)
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
            first = np.searchsorted(domains, domains)
            rank = np.arange(len(rows)) - first
            before = np.concatenate(([0], np.cumsum(gpus[rows])))  # the GPUs of all rows before each one
            kept[rows[(rank < each.nodes) | (before[:-1] - before[first] < each.gpus)]] = True
        return kept

    def _are_lent(self, _: str, nodes: NodeView) -> tuple[BoolColumn]:
        """Nodes with pods that have GPUs, and on which all of these pods may use spares."""
        lent = np.zeros(len(nodes), dtype=np.bool_)
        for at in range(len(nodes)):  # all nodes once, and then each node that has changed
            users = [self._lending.takes(pod) for pod in nodes.pods(at).values() if self._has_gpus(pod)]
            lent[at] = bool(users) and all(users)
        return (lent,)

    def _has_gpus(self, pod: PodInfo) -> bool:
        return pod.cls.requests.real.get(custom_resources.GPU, 0) > 0 or self._table.allocation(pod.uid) is not None

    def _tell_unknown(self, level: str) -> None:
        if level not in self._unknown and self._handle.nodes.alive.any():
            self._unknown.add(level)
            names = self._handle.topology.names()
            log.warning("Recovery keeps no spares of the level %s: no node has it; the levels are: %s", level, names)
