"""Matrices of devices by nodes, with one column for each node: nodes with equal devices have equal columns.

An operation on a matrix goes through all nodes at once, one device of each node after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.dra.properties import MISSING, UNKNOWN, Codes
from gangline.dra.rows import Kinds, RowNumbers, kinds
from gangline.dra.table import SliceTable

Matrix = NDArray[Any]
NO_DEVICE = -1
"""The row of a device that a node does not have."""
_MANY = 64
"""With more devices on a node, there is no matrix of the devices."""
_MOST_CELLS = 4
"""So many cells for each device: with more there is no matrix, because most nodes have few devices and some many."""
_MOST_ATTRIBUTES = 8
"""Attributes of which the values are kept as matrices."""
_FEW = 16
"""Up to so many devices of a node are compared each with each."""
_FACTOR = 0x2545F4914F6CDD1D
"""An odd number with its bits spread at random."""
_SLOTS = 1 << 16
_SHIFTS = (48, 40, 32)
"""Which bits of a key choose its slot; the next ones count where keys share a slot."""


class OwnDevices:
    """The rows of the devices that nodes have for themselves, as a matrix, which is kept until a device changes."""

    def __init__(self, table: SliceTable) -> None:
        self._table = table
        self._known = (-1, -1)
        """The turnover of the rows for which the matrix was made, and the number of nodes."""
        self._rows: RowNumbers | None = None
        self._relative: dict[str, Matrix] = {}
        """By attribute: its values, as in `relative`."""

    def rows(self, size: int) -> RowNumbers | None:
        """By device and node: the row of the device, or NO_DEVICE; of the first `size` nodes.

        The devices of a node stand in the order of their rows. None if nodes have too many devices.
        """
        known = self._table.rows.turnover, size
        if self._known != known:
            self._rows = self._made(size)
            self._relative.clear()
            self._known = known
        return self._rows

    def relative(self, attribute: str, values: Codes, rows: RowNumbers) -> Matrix:
        """As `relative`, of the values of an attribute, a column over the table; `rows` are the current ones."""
        found = self._relative.get(attribute)
        if found is None:
            if len(self._relative) >= _MOST_ATTRIBUTES:
                self._relative.clear()
            found = self._relative[attribute] = relative(picked(values, rows, MISSING))
        return found

    def _made(self, size: int) -> RowNumbers | None:
        node = self._table.node
        order = np.argsort(node, kind="stable")
        order = order[np.searchsorted(node[order], 0) :]
        node = node[order]
        lengths = np.bincount(node, minlength=size)
        longest = int(lengths.max(initial=0))
        if not 0 < longest <= _MANY or longest * size > _MOST_CELLS * len(order):
            return None
        rows = np.full((longest, size), NO_DEVICE, dtype=np.int64)
        rows[np.arange(len(order)) - (np.cumsum(lengths) - lengths)[node], node] = order
        return rows


def picked(column: NDArray[Any], rows: RowNumbers, missing: float) -> Matrix:
    """The cells of a column in a matrix of rows; `missing` where there is no device."""
    found: Matrix = np.take(column, rows, mode="clip")  # faster than `column[rows]`
    is_gap = rows == NO_DEVICE
    if is_gap.any():
        found[is_gap] = missing
    return found


def relative(values: Codes) -> Matrix:
    """By device and node: the first device of the node with an equal value; negative for a device without a value."""
    length, nodes = values.shape
    if length <= _FEW:
        found = np.repeat(np.arange(length, dtype=np.int8)[:, None], nodes, axis=1)
        for at in range(length - 2, -1, -1):
            np.copyto(found[at + 1 :], at, where=values[at + 1 :] == values[at])
    else:
        numbers, first = kinds([np.tile(np.arange(nodes), length), values.ravel()])
        found = (first // nodes)[numbers].reshape(length, nodes)
    is_none = values <= MISSING
    found[is_none] = np.maximum(values[is_none], UNKNOWN)  # a list counts as unknown
    return found


def equal_columns(matrix: Matrix) -> Kinds:
    """By column: a number, equal for equal columns. By number: the first such column."""
    keys = np.zeros(matrix.shape[1], dtype=np.int64)
    for row in matrix:
        keys += row
        keys *= _FACTOR
    firsts = _first_equal(keys)
    if not np.array_equal(matrix, np.take(matrix, firsts, axis=1, mode="clip")):  # columns have equal keys by chance
        _, first, numbers = np.unique(matrix, axis=1, return_index=True, return_inverse=True)
        return numbers.ravel(), first
    is_first = firsts == np.arange(len(firsts))
    return (np.cumsum(is_first) - 1)[firsts], np.flatnonzero(is_first)


def _first_equal(keys: NDArray[np.int64]) -> NDArray[np.intp]:
    """By place: the first place with an equal key. Keys are spread over slots, which is much faster than sorting."""
    found = np.arange(len(keys))
    left = found
    slots = np.empty(_SLOTS, dtype=np.intp)
    for shift in _SHIFTS:
        some = keys[left]
        at = some >> shift & (_SLOTS - 1)
        slots[at[::-1]] = left[::-1]  # of several values for one slot numpy keeps the last one
        found[left] = slots[at]
        left = left[keys[found[left]] != some]  # they share a slot with another key
        if not len(left):
            return found
    _, first, numbers = np.unique(keys[left], return_index=True, return_inverse=True)
    found[left] = left[first[numbers]]
    return found
