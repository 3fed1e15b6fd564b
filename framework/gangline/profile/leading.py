"""The rows with the highest value in a column, kept up to date row by row.

When pods are placed one after another, most of them change one row of the column, so the next choice need not look at
all rows. The rows are in order, as a look at the whole column finds them: so the same random number chooses the same
row.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from operator import itemgetter

import numpy as np

from gangline.state.node_view import Rows
from gangline.status import ScoreColumn

MOST_LEVELS = 8
"""Values below the highest one of which the rows are known, at most."""


class BestRows:
    """The leading rows of a column that has at least one row.

    A row that rises above all others often falls again with the next pods. So the rows that led before are kept as the
    next *level*. All rows of the lowest level and above are known.
    """

    __slots__ = ("_below", "rows", "value")

    def __init__(self, column: ScoreColumn) -> None:
        self.value: float = column.max().item()
        self.rows: Rows | array[int] = (column == self.value).nonzero()[0]
        """In rising order: as numpy finds them, and from the first change on an `array`, which is quick to change."""
        self._below: list[tuple[float, array[int]]] = []
        """The next levels, with rising values: the rows that have each value. No row has a value in between."""

    def follow(self, row: int, before: float, now: float) -> bool:
        """One value has changed; False if no row leads any more, so that the whole column has to be looked at."""
        rows, value, below = self.rows, self.value, self._below
        if not isinstance(rows, array):
            rows = self.rows = array("i", rows.astype(np.int32).tobytes())
        if before == now:
            return True
        if before == value:
            del rows[bisect_left(rows, row)]
        elif below and before >= below[0][0]:
            self._leave(row, before)
        if now > value:
            if rows:
                below.append((value, rows))
                del below[:-MOST_LEVELS]
            self.rows, self.value = array("i", (row,)), now
        elif now == value:
            insort(rows, row)
        elif below and now >= below[0][0]:
            self._enter(row, now)
        if not self.rows:
            if not below:
                return False
            self.value, self.rows = below.pop()
        return True

    def _leave(self, row: int, value: float) -> None:
        """A row leaves its level."""
        at = bisect_left(self._below, value, key=itemgetter(0))
        rows = self._below[at][1]
        del rows[bisect_left(rows, row)]
        if not rows:
            del self._below[at]

    def _enter(self, row: int, value: float) -> None:
        """A row enters the level of its value, which may be a new one."""
        at = bisect_left(self._below, value, key=itemgetter(0))
        if at < len(self._below) and self._below[at][0] == value:
            insort(self._below[at][1], row)
        else:
            self._below.insert(at, (value, array("i", (row,))))
            del self._below[:-MOST_LEVELS]
