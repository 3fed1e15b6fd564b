"""Counts per node and per topology domain: the arithmetic for the counters of pods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, NodeView, Rows

Int64Column = NDArray[np.int64]
_MOST_SPARSE = 32


class RowCounts:
    """A number per row, most of them 0: a dictionary while few rows have a number, then a growing array."""

    __slots__ = ("_dense", "_sparse", "total")

    def __init__(self) -> None:
        self.total = 0
        self._sparse: dict[int, int] = {}
        self._dense: Int64Column | None = None

    def add(self, row: int, amount: int) -> None:
        """Change the number of a row."""
        self.total += amount
        if self._dense is not None:
            if row >= len(self._dense):
                self._grow(row + 1)
            self._dense[row] += amount
            return
        number = self._sparse.get(row, 0) + amount
        if number:
            self._sparse[row] = number
            if len(self._sparse) > _MOST_SPARSE:
                self._dense = self._filled(np.zeros(2 * max(self._sparse), dtype=np.int64))
                self._sparse = {}
        else:
            del self._sparse[row]

    def column(self, size: int) -> Int64Column:
        """The numbers of the first `size` rows, int64; to read only."""
        if self._dense is None:
            return self._filled(np.zeros(size, dtype=np.int64))
        if len(self._dense) < size:
            self._grow(size)
        return self._dense[:size]

    def rows(self) -> Rows:
        """The rows whose number is not 0."""
        if self._dense is None:
            return np.fromiter(self._sparse, dtype=np.intp, count=len(self._sparse))
        return np.flatnonzero(self._dense)

    def add_to(self, column: Int64Column, weight: int) -> None:
        """Add weight times the numbers to a column over all rows."""
        if self._dense is None:
            for row, number in self._sparse.items():  # at most a few rows
                column[row] += weight * number
        else:
            column += weight * self.column(len(column))

    def _filled(self, column: Int64Column) -> Int64Column:
        for row, number in self._sparse.items():  # at most a few rows
            column[row] = number
        return column

    def _grow(self, size: int) -> None:
        assert self._dense is not None  # only arrays grow
        grown = np.zeros(max(size, 2 * len(self._dense)), dtype=np.int64)
        grown[: len(self._dense)] = self._dense
        self._dense = grown


class KeySlots:
    """The values of one topology key as numbers: slot 0 is for nodes without the label, slots from 1 are for the
    values.
    """

    __slots__ = ("has", "size", "slots")

    def __init__(self, nodes: NodeView, key: str) -> None:
        column = nodes.label(key)
        self.slots: Rows = np.add(column.ids, 1, dtype=np.intp)
        self.size = len(column.values) + 1
        self.has: BoolColumn = self.slots > 0

    def touched_by(self, rows: Rows) -> BoolColumn:
        """Nodes that share a domain with one of rows."""
        flags = np.zeros(self.size, dtype=np.bool_)
        flags[self.slots[rows]] = True
        flags[0] = False
        return flags[self.slots]


def slot_sums(slots: Rows, amounts: NDArray[Any], size: int) -> NDArray[np.float64]:
    """The sum of amounts (one per node) in each of `size` slots, float64; exact below 2**53."""
    return np.bincount(slots, weights=amounts, minlength=size).astype(np.float64, copy=False)
