"""Groups of linked devices of a node, and how many devices of each are free.

Devices are linked on a level if they have the same value of the attribute of this level: see `LEVELS`. Devices without
the attribute are one group, too. The groups of a node are numbered in the order in which they first occur, so nodes of
one shape have equal numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.dra.properties import Properties
from gangline.dra.rows import RowNumbers, kinds
from gangline.dra.sharing import Values
from gangline.dra.stakes import LEVELS, WEIGHTS, Groups
from gangline.dra.standing import Standing
from gangline.sizes import BoundedCache

_MOST_BYTES = 32 << 20
"""Bytes of the groups of all nodes, at most."""
_NODE_BYTES = 2000
_ROW_BYTES = 300
_FEW = 4096
"""If more nodes than this have changed, the groups of all nodes are forgotten."""
_FEW_AT_ONCE = 4
"""The devices of so many nodes, or fewer, are counted node by node, in the groups that are kept."""


class _Linked(msgspec.Struct, frozen=True, eq=False):
    """The groups of a node."""

    rows: RowNumbers
    """The devices that the node alone may use."""
    of_row: dict[int, tuple[int, ...]]
    """By row of a device: the number of its group on each level."""
    numbers: tuple[NDArray[np.int64], ...]
    """By level and device: the number of its group."""
    totals: tuple[NDArray[np.int64], ...]
    """By level and group: the number of devices."""
    codes: tuple[dict[int, int], ...]
    """By level and code of the attribute's value: the number of the group."""


class Outline(NamedTuple):
    """The part of a node's groups that does not depend on which devices are taken."""

    rows: RowNumbers
    """The devices whose states decide the part that depends on it."""
    groups: Hashable
    """Two nodes for which this is equal have equal groups whenever the states of these devices are equal."""


class Links:
    """The groups of all nodes."""

    def __init__(self, standing: Standing, properties: Properties) -> None:
        self._standing = standing
        self._table = standing.table
        self._levels = tuple(map(properties.attribute, LEVELS))
        """The columns of the levels: codes that are kept with groups stay those of these columns."""
        self._kept: BoundedCache[int, _Linked] = BoundedCache(
            _MOST_BYTES, lambda _, each: _NODE_BYTES + _ROW_BYTES * len(each.rows)
        )
        self._moved = self._table.moved.position

    def crowds(self, rows: RowNumbers) -> Values:
        """For each device the fraction of the devices in its groups that are free: 0 to 1, weighted over the levels.

        `rows` are all devices that some nodes have for themselves.
        """
        found = np.zeros(len(rows))
        if not len(rows):
            return found
        place = self._table.node[rows]
        is_free = self._standing.states[rows] == 0
        for column, weight in zip(self._levels, WEIGHTS, strict=True):
            numbers, firsts = kinds([place, column.values[rows]])
            free = np.bincount(numbers[is_free], minlength=len(firsts))
            found += weight * (free / np.bincount(numbers))[numbers]
        return found

    def own_crowds(self, nodes: list[int] | None) -> tuple[RowNumbers, Values]:
        """The devices that these nodes have for themselves, and what `crowds` says of each; with None, of all nodes."""
        if nodes and len(nodes) <= _FEW_AT_ONCE:
            parts = [self._crowds_on(node) for node in nodes]
            return np.concatenate([rows for rows, _ in parts]), np.concatenate([values for _, values in parts])
        node = self._table.node
        rows = self._table.rows_on(np.unique(node[node >= 0]).tolist() if nodes is None else nodes)
        return rows, self.crowds(rows)

    def _crowds_on(self, node: int) -> tuple[RowNumbers, Values]:
        linked = self._of(node)
        found = np.zeros(len(linked.rows))
        for weight, numbers, free, total in zip(
            WEIGHTS, linked.numbers, self._free(linked), linked.totals, strict=True
        ):
            found += weight * (free / total)[numbers]
        return linked.rows, found

    def groups(self, rows: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], Groups]:
        """By device: the number of its group on each level. By level and group: how many devices are free, and how many
        the group has.

        The devices are some that one node may use. The counts cover the devices that only this node may use: a group
        that has none of them counts as 0 of 0.
        """
        nodes = {self._table.node_of(row) for row in rows}
        node = max(nodes, default=-1)
        if node < 0:
            return self._with_others(rows, [{} for _ in LEVELS], [[] for _ in LEVELS])
        linked = self._of(node)
        known = [
            list(zip(free.tolist(), total.tolist(), strict=True))
            for free, total in zip(self._free(linked), linked.totals, strict=True)
        ]
        if len(nodes) > 1:
            return self._with_others(rows, [dict(codes) for codes in linked.codes], known)
        return tuple([linked.of_row[row] for row in rows]), tuple(map(tuple, known))

    def outline(self, node: int, rows: Sequence[int]) -> Outline | None:
        """The part of `groups` for these devices that does not depend on which devices are taken; None if other nodes
        may use one of the devices.
        """
        if any(self._table.node_of(row) != node for row in rows):
            return None
        linked = self._of(node)
        totals = tuple([tuple(total.tolist()) for total in linked.totals])
        return Outline(linked.rows, (tuple([linked.of_row[row] for row in rows]), totals))

    def _with_others(
        self, rows: Sequence[int], codes: list[dict[int, int]], known: list[list[tuple[int, int]]]
    ) -> tuple[tuple[tuple[int, ...], ...], Groups]:
        """As `groups`; values that `codes` does not know get new groups without known devices."""
        numbers = []
        for column, of_level, groups in zip(self._levels, codes, known, strict=True):
            values = column.values[list(rows)].tolist()
            numbers.append([of_level.setdefault(value, len(of_level)) for value in values])
            groups += [(0, 0)] * (len(of_level) - len(groups))
        return tuple(zip(*numbers, strict=True)), tuple(map(tuple, known))

    def _free(self, linked: _Linked) -> list[NDArray[np.int64]]:
        is_free = self._standing.states[linked.rows] == 0
        return [
            np.bincount(numbers[is_free], minlength=len(total))
            for numbers, total in zip(linked.numbers, linked.totals, strict=True)
        ]

    def _of(self, node: int) -> _Linked:
        moved = self._table.moved
        if self._moved != moved.position:
            changed = moved.since(self._moved, _FEW)
            if changed is None:
                self._kept.clear()
            else:
                for row in changed[0].tolist():
                    self._kept.pop(row)
            self._moved = moved.position
        found = self._kept.get(node)
        return self._kept.put(node, self._read(node)) if found is None else found

    def _read(self, node: int) -> _Linked:
        rows = self._table.rows_on([node])
        codes: list[dict[int, int]] = []
        numbers = []
        for column in self._levels:
            of_level: dict[int, int] = {}
            values = column.values[rows].tolist()
            numbers.append([of_level.setdefault(value, len(of_level)) for value in values])
            codes.append(of_level)
        columns = tuple(np.array(each, dtype=np.int64) for each in numbers)
        totals = tuple(np.bincount(each, minlength=len(of)) for each, of in zip(columns, codes, strict=True))
        of_row = dict(zip(rows.tolist(), zip(*numbers, strict=True), strict=True))
        return _Linked(rows, of_row, columns, totals, tuple(codes))
