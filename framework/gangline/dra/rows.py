"""Rows of the slice table, and kept columns over the rows: only rows that have changed are evaluated again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline.state.changes import NODE, Changes

T = TypeVar("T", bound=np.generic)
_MOST_CODES = 2**31
"""Combinations are numbered anew when their numbers have grown beyond this, so that no number overflows."""
RowNumbers = NDArray[np.int64]
Kinds = tuple[NDArray[np.intp], NDArray[np.intp]]
"""By place: the number of its kind. By number: the first place of the kind."""


def grown(cells: NDArray[T], size: int) -> NDArray[T]:
    """The cells, copied to a larger array if they are fewer than `size`; new cells are zero."""
    if len(cells) >= size:
        return cells
    larger = np.zeros(size + size // 2 + 64, dtype=cells.dtype)
    larger[: len(cells)] = cells
    return larger


def kinds(columns: Iterable[NDArray[Any]]) -> Kinds:
    """For each position a number, equal where all columns have equal values; and the first position of each number."""
    codes, width = _packed(columns)
    if width == 1:
        return np.zeros(len(codes), dtype=np.intp), np.zeros(1, dtype=np.intp)
    if width > 4 * len(codes):
        _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
        return numbers.ravel(), first
    firsts = np.full(width, -1, dtype=np.intp)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of several values for one place numpy keeps the last one
    present = firsts >= 0
    return (np.cumsum(present) - 1)[codes], firsts[present]


def packed(columns: Iterable[NDArray[Any]]) -> NDArray[np.int32]:
    """For each cell a number from 0 on, equal where the values of all columns, or matrices of one shape, are equal."""
    columns = list(columns)
    bounds = [(int(column.min()), int(column.max())) for column in columns]
    if prod(highest - least + 1 for least, highest in bounds) >= _MOST_CODES or any(map(_is_long, columns)):
        return _packed(columns)[0].astype(np.int32)
    codes = np.zeros(columns[0].shape if columns else 0, dtype=np.int32)
    for column, (least, highest) in zip(columns, bounds, strict=True):
        codes *= highest - least + 1
        codes += column
        codes -= least
    return codes


def _is_long(column: NDArray[Any]) -> bool:
    """Whether the cells may have more than 32 bits."""
    return not np.can_cast(column.dtype, np.int32)


def _packed(columns: Iterable[NDArray[Any]]) -> tuple[NDArray[np.int64], int]:
    """As `packed`, with a number that is larger than all of the numbers."""
    codes, width = np.zeros(0, dtype=np.int64), 1
    for column in columns:
        least = int(column.min())
        size = int(column.max()) - least + 1
        own = column.astype(np.int64)
        if least:
            own -= least
        if width > 1:
            codes *= size
            codes += own
        else:
            codes = own
        width *= size
        if width > _MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1].reshape(codes.shape)
            width = int(codes.max()) + 1
    return codes, width


class Rows:
    """How many rows there are, and which of them have changed."""

    def __init__(self) -> None:
        self.size = 0
        self.log = Changes()
        self.turnover = 0
        """How often a row has got a new device since the beginning."""
        self.has_columns = False
        self._all: RowNumbers = np.arange(0)

    @property
    def all(self) -> RowNumbers:
        """All rows; nobody may write to them."""
        if len(self._all) != self.size:
            self._all = np.arange(self.size)
        return self._all

    def note(self, row: int) -> None:
        """Note that another device is in this row now, or that other nodes may use the device."""
        self.turnover += 1
        if self.has_columns:
            self.log.note_valid(row, NODE)


class FreeRows:
    """Rows without a device, in ranges that are given out again."""

    def __init__(self) -> None:
        self.number = 0
        self._ranges: dict[int, list[range]] = {}
        """By length."""

    def put(self, rows: range) -> None:
        """Put rows back that have no devices any more."""
        self._ranges.setdefault(len(rows), []).append(rows)
        self.number += len(rows)

    def get(self, count: int) -> range | None:
        """A range of so many rows, which are free no more; None if there is none."""
        ranges = self._ranges.get(count)
        if not ranges:
            return None
        self.number -= count
        return ranges.pop()


class RowColumn(Generic[T]):
    """A column over rows.

    `evaluate` returns one value for each of the given rows. The rows ascend without repetition, so if their number is
    that of the table, they are all rows. `evaluate` may depend only on things whose changes `Rows` notes.
    """

    def __init__(self, rows: Rows, dtype: type[T], evaluate: Callable[[RowNumbers], Any]) -> None:
        rows.has_columns = True
        self._rows = rows
        self._evaluate = evaluate
        self._cells: NDArray[T] = np.zeros(0, dtype=dtype)
        self._position = -1

    @property
    def values(self) -> NDArray[T]:
        """The column as it is now. Callers may not write to the column, and may use it until the next change."""
        rows = self._rows
        if self._position != rows.log.position:
            self._refresh()
        return self._cells[: rows.size]

    def _refresh(self) -> None:
        rows, position = self._rows, self._rows.log.position
        changed = None if self._position < 0 else rows.log.since(self._position, max(64, rows.size // 4))
        which = rows.all if changed is None else np.sort(changed[0])
        self._cells = grown(self._cells, rows.size)
        if len(which):
            self._cells[slice(0, rows.size) if changed is None else which] = self._evaluate(which)
        self._position = position

    def __setitem__(self, row: int, value: Any) -> None:
        """Write the cell of a row, if the column has been evaluated."""
        if row < len(self._cells):
            self._cells[row] = value

    def forget(self) -> None:
        """Evaluate all rows again when the column is next read."""
        self._position = -1

    @property
    def nbytes(self) -> int:
        """Bytes of the cells."""
        return self._cells.nbytes
