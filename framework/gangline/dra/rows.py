"""Rows of the slice table, and columns over them that are kept: only rows that have changed are evaluated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline.state.changes import NODE, Changes

T = TypeVar("T", bound=np.generic)
_MOST_CODES = 2**31
"""Numbers of combinations are made small again before they grow beyond this."""
RowNumbers = NDArray[np.int64]


def grown(cells: NDArray[T], size: int) -> NDArray[T]:
    """The same cells with room for `size` rows and some more; new ones are zero."""
    if len(cells) >= size:
        return cells
    larger = np.zeros(size + size // 2 + 64, dtype=cells.dtype)
    larger[: len(cells)] = cells
    return larger


def kinds(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Numbers for what rows differ in over some columns, and the first position of each number."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        least = int(column.min())
        codes = codes * (int(column.max()) - least + 1) + (column - least)
        if codes.max() > _MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1].ravel()
    width = int(codes.max()) + 1
    if width > 4 * len(codes):
        _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
        return numbers.ravel(), first
    firsts = np.full(width, -1, dtype=np.intp)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of several, numpy writes the last
    present = firsts >= 0
    return (np.cumsum(present) - 1)[codes], firsts[present]


class Rows:
    """How many rows there are, and which of them have changed."""

    def __init__(self) -> None:
        self.size = 0
        self.log = Changes()
        self.turnover = 0
        """How many rows have got a device, or another one, since the beginning."""
        self.has_columns = False

    def note(self, row: int) -> None:
        """The device in this row is another one now, or it is somewhere else."""
        self.turnover += 1
        if self.has_columns:
            self.log.note(row, NODE)


class RowColumn(Generic[T]):
    """A column over rows.

    `evaluate` returns one value for each of some rows, which ascend, so that as many as there are are all of them. It
    may read only what `Rows` notes.
    """

    def __init__(self, rows: Rows, dtype: type[T], evaluate: Callable[[RowNumbers], Any]) -> None:
        rows.has_columns = True
        self._rows = rows
        self._evaluate = evaluate
        self._cells: NDArray[T] = np.zeros(0, dtype=dtype)
        self._position = -1

    @property
    def values(self) -> NDArray[T]:
        """The column as it is now; nobody may write to it, and it holds only until the next change."""
        rows = self._rows
        if self._position != rows.log.position:
            self._refresh()
        return self._cells[: rows.size]

    def _refresh(self) -> None:
        rows, position = self._rows, self._rows.log.position
        changed = None if self._position < 0 else rows.log.since(self._position, max(64, rows.size // 4))
        which = np.arange(rows.size) if changed is None else np.sort(changed[0])
        self._cells = grown(self._cells, rows.size)
        if len(which):
            self._cells[which] = self._evaluate(which)
        self._position = position

    def __setitem__(self, row: int, value: Any) -> None:
        """Write the cell of a row, if the column has been evaluated."""
        if row < len(self._cells):
            self._cells[row] = value

    @property
    def nbytes(self) -> int:
        """The memory of the cells."""
        return self._cells.nbytes
