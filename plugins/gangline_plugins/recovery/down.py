"""Domains that an administrator has marked as down: their nodes are lost, all at once, and no pods come to them."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, Domains, Handle
from gangline_plugins.recovery.arguments import DownArgs

log = logging.getLogger(__name__)


class DownDomains:
    """Knows the nodes in these domains; works them out again when the labels of nodes have changed."""

    def __init__(self, handle: Handle, args: Sequence[DownArgs]) -> None:
        self._handle = handle
        self._args = args
        self._unknown: set[DownArgs] = set()
        """The domains of which the log says already that no node is in them."""
        self._levels: list[Domains] = []
        """The levels from which `_numbers` and `_rows` were computed; changed labels give the topology new levels."""
        self._numbers: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        """For each row the place in `_args` of the first domain that contains the node; `len(_args)` if none does."""
        self._rows: BoolColumn = np.empty(0, dtype=np.bool_)

    @property
    def any(self) -> bool:
        """Whether a domain is marked as down."""
        return bool(self._args)

    def rows(self) -> BoolColumn:
        """The nodes in these domains, for all rows."""
        self._look()
        return self._rows

    def nodes(self) -> Mapping[str, str]:
        """The names of the nodes in these domains, and why each is lost."""
        self._look()
        nodes, found = self._handle.nodes, {}
        for row in np.flatnonzero(self._rows & nodes.alive).tolist():  # the nodes that are down
            each, name = self._args[self._numbers[row]], nodes.name_of(row)
            found[name] = f"{each.level} {each.name} of node {name} is marked as down"
        return found

    def _look(self) -> None:
        """Compute the columns again, unless the topology is as it was. Without levels that cannot be seen."""
        levels, size = self._handle.topology.chain(), len(self._handle.nodes)
        if levels and levels == self._levels and size == len(self._numbers):
            return
        numbers, unknown = np.full(size, len(self._args), dtype=np.int32), set(self._args)
        for name in dict.fromkeys(each.level for each in self._args):
            level = self._handle.topology.find(name)
            if level is not None:
                numbers = np.minimum(numbers, self._numbers_of(level, name)[level.ids])
                there = {*level.values, *map(level.path, range(len(level)))}
                unknown -= {each for each in self._args if each.level == name and each.name in there}
        self._levels, self._numbers, self._rows = levels, numbers, numbers < len(self._args)
        self._rows.setflags(write=False)
        self._tell(unknown)

    def _numbers_of(self, level: Domains, name: str) -> NDArray[np.int32]:
        """For each domain of a level its place in `_args`, or `len(_args)`, as in the last entry, which is for no
        domain.
        """
        first: dict[str, int] = {}
        for number, each in enumerate(self._args):
            if each.level == name:
                first.setdefault(each.name, number)
        none = len(self._args)
        found = [min(first.get(level.values[n], none), first.get(level.path(n), none)) for n in range(len(level))]
        return np.array([*found, none], dtype=np.int32)

    def _tell(self, unknown: Container[DownArgs]) -> None:
        for each in self._args:
            if each in unknown and each not in self._unknown and self._handle.nodes.alive.any():
                self._unknown.add(each)
                log.warning("Recovery: no node is in the %s %s, which is marked as down", each.level, each.name)
