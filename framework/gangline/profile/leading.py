"""The rows with the highest value in a column, kept up to date row by row.

When pods are placed one after another, most of them change one row of the column, so the next choice need not look at
all rows. The rows are in order, as a look at the whole column finds them: so the same random number chooses the same
row.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort

import numpy as np

from gangline.state.node_view import Rows
from gangline.status import ScoreColumn


class BestRows:
    """The leading rows of a column that has at least one row."""

    __slots__ = ("rows", "value")

    def __init__(self, column: ScoreColumn) -> None:
        self.value: float = column.max().item()
        self.rows: Rows | array[int] = (column == self.value).nonzero()[0]
        """In rising order: as numpy finds them, and from the first change on an `array`, which is quick to change."""

    def follow(self, row: int, before: float, now: float) -> bool:
        """One value has changed; False if no row leads any more, so that the whole column has to be looked at."""
        rows, value = self.rows, self.value
        if not isinstance(rows, array):
            rows = self.rows = array("i", rows.astype(np.int32).tobytes())
        if now > value:
            self.rows, self.value = array("i", (row,)), now
        elif before == value:
            if now != value:
                del rows[bisect_left(rows, row)]
                return bool(rows)
        elif now == value:
            insort(rows, row)
        return True
