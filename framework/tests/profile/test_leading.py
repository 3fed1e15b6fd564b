"""The best rows that are kept are those that a look at the whole column finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.profile.leading import BestRows

VALUES = st.lists(st.sampled_from([-1.0, 0.0, 50.0, 100.0]), min_size=1, max_size=6)
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-1.0, 0.0, 50.0, 75.0, 100.0])), max_size=12)


@given(VALUES, CHANGES)
def test_after_any_changes_the_best_rows_are_those_of_the_whole_column(
    values: list[float], changes: list[tuple[int, float]]
) -> None:
    column = np.array(values)
    leaders = BestRows(column)
    for row, now in changes:
        row %= len(column)
        some_lead = leaders.follow(row, column.item(row), now)
        column[row] = now

        assert some_lead == bool(leaders.rows)
        leaders = leaders if some_lead else BestRows(column)
        assert list(leaders.rows) == (column == column.max()).nonzero()[0].tolist()
