"""The devices of nodes, one node after the other, kept until the pools of a node change.

A question about many nodes looks at the devices of all these nodes together. Pools are read again only for nodes whose
pools have changed since the last question.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.placed import PlacedPool
from gangline.dra.pools import PoolCondition
from gangline.dra.rows import RowNumbers, grown
from gangline.dra.standing import Standing
from gangline.status import BoolColumn

_FEW = 4096
"""If more nodes than this have changed, the pools of all nodes are read again."""
_MOST_LEFT = 65_536
"""Different remainders of counters that are told apart at a time."""
_MOST_RELATIVES = 8
"""Matrices of an attribute that are kept, at most."""
_Left = tuple[tuple[tuple[tuple[str, str], int], ...], ...]


class LaidOut(NamedTuple):
    """The devices of some nodes."""

    rows: RowNumbers
    """The devices, those of a node in the order in which they are tried."""
    place: RowNumbers
    """By device: the position of its node among the nodes of the question."""
    order: RowNumbers
    """By device: the position of its pool among the pools of that node."""
    relatives: dict[tuple[str, int], NDArray[Any]]
    """By attribute and number of devices of a node: `matrices.relative` of the nodes with so many devices, as kept by
    `relative_of`."""

    def relative_of(self, attribute: str, length: int, values: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """What `values` gives for an attribute and the nodes with so many devices; kept as long as the devices are."""
        found = self.relatives.get((attribute, length))
        if found is None:
            if len(self.relatives) >= _MOST_RELATIVES:
                self.relatives.clear()
            found = self.relatives[attribute, length] = values()
        return found


class DeviceLayout:
    """The devices of all nodes that were asked about."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._table = standing.table
        self._moved = self._table.moved.position
        self._touched = self._table.touched.position
        self._numbers = count()
        self._left_numbers: dict[_Left, int] = {}
        self._forget()

    def _forget(self) -> None:
        self._rows: RowNumbers = np.zeros(0, dtype=np.int64)
        self._order: RowNumbers = np.zeros(0, dtype=np.int64)
        self._live = 0
        """How many entries of `_rows` are in use; the others belonged to nodes whose devices have changed."""
        self._starts: RowNumbers = np.zeros(0, dtype=np.int64)
        """By node: the index of its first device in `_rows`, plus one; 0 if the pools of the node have to be read."""
        self._lengths: RowNumbers = np.zeros(0, dtype=np.int64)
        self._hard: BoolColumn = np.zeros(0, dtype=np.bool_)
        self._left: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """By node: a number that stands for what is left of the counters of its pools, plus one; 0 if the counters have
        to be read."""
        self._last: tuple[RowNumbers, LaidOut] | None = None
        """The nodes of which `of` was asked last, and their devices."""

    def is_hard(self, nodes: RowNumbers) -> BoolColumn:
        """For each of these nodes: whether its devices cannot be compared with those of other nodes; see `likeness`."""
        self._read(nodes)
        return self._hard[nodes]

    def size_of(self, nodes: RowNumbers) -> int:
        """How many devices these nodes see."""
        self._read(nodes)
        return int(self._lengths[nodes].sum())

    def of(self, nodes: RowNumbers) -> LaidOut:
        """The devices of these nodes; nobody may write to them."""
        self._read(nodes)
        if self._last is None or not np.array_equal(nodes, self._last[0]):
            self._last = np.array(nodes), self._laid_out(nodes)
        return self._last[1]

    def _laid_out(self, nodes: RowNumbers) -> LaidOut:
        lengths = self._lengths[nodes]
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        at = np.arange(total) + np.repeat(self._starts[nodes] - 1 - (ends - lengths), lengths)
        return LaidOut(self._rows[at], np.repeat(np.arange(len(nodes)), lengths), self._order[at], {})

    def left(self, nodes: RowNumbers) -> NDArray[np.int64]:
        """For each of these nodes a number. Nodes with equal numbers have equal amounts left of all their counters."""
        self._read(nodes)
        self._follow_counters()
        unread = nodes[self._left[nodes] == 0]
        if len(self._left_numbers) + len(unread) > _MOST_LEFT:
            self._left_numbers.clear()
            self._left[:] = 0
            unread = nodes
        for node in unread.tolist():
            pools = self._table.pools_of(node)
            key = tuple([self._left_of(placed) for placed in pools if placed.pool.counters])
            if key not in self._left_numbers:
                self._left_numbers[key] = next(self._numbers)
            self._left[node] = self._left_numbers[key] + 1
        return self._left[nodes]

    def _left_of(self, placed: PlacedPool) -> tuple[tuple[tuple[str, str], int], ...]:
        return tuple(sorted(self._standing.left(placed).items()))

    def _follow_counters(self) -> None:
        touched = self._table.touched
        if self._touched != touched.position:
            changed = touched.since(self._touched, _FEW)
            if changed is None:
                self._left[:] = 0
            else:
                self._left[changed[0][changed[0] < len(self._left)]] = 0
            self._touched = touched.position

    def _read(self, nodes: RowNumbers) -> None:
        """Read the pools of these nodes, except of nodes whose pools have not changed since they were read."""
        moved = self._table.moved
        if self._moved != moved.position:
            changed = moved.since(self._moved, _FEW)
            if changed is None or len(self._rows) > 2 * self._live + _FEW:
                self._forget()
            else:
                gone = changed[0][changed[0] < len(self._starts)]
                self._live -= int(self._lengths[gone[self._starts[gone] > 0]].sum())
                self._starts[gone] = 0
                self._left[gone] = 0
            self._moved = moved.position
            self._last = None
        size = int(nodes.max(initial=-1)) + 1
        self._starts, self._lengths = grown(self._starts, size), grown(self._lengths, size)
        self._hard, self._left = grown(self._hard, size), grown(self._left, size)
        unread = nodes[self._starts[nodes] == 0].tolist()
        if unread:
            self._append(unread)

    def _append(self, nodes: list[int]) -> None:
        parts: list[RowNumbers] = [self._rows]
        orders: list[RowNumbers] = [self._order]
        end = len(self._rows)
        for node in nodes:
            start = end
            for order, placed in enumerate(pools := self._table.pools_of(node)):
                parts.append(placed.rows)
                orders.append(np.full(len(placed.rows), order))
                end += len(placed.rows)
            self._starts[node], self._lengths[node] = start + 1, end - start
            self._hard[node] = any(
                [placed.selects_devices or placed.pool.condition is not PoolCondition.USABLE for placed in pools]
            )
        self._live += end - len(self._rows)
        self._rows, self._order = np.concatenate(parts), np.concatenate(orders)
