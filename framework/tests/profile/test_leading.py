"""The best rows that are kept are those that a look at the whole column finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.profile.leading import MOST_LEVELS, BestRows

VALUES = st.lists(st.sampled_from([-1.0, 0.0, 50.0, 100.0]), min_size=1, max_size=6)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 5), st.sampled_from([-1.0, 0.0, 50.0, 75.0, 100.0])),
        st.tuples(st.integers(0, 5), st.integers(50, 70).map(float)),
    ),
    max_size=24,
)


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


def test_a_row_that_leads_for_a_while_leaves_the_lead_to_those_before() -> None:
    column = np.array([5.0, 9.0, 9.0, 9.0])
    leaders = BestRows(column)

    for before, now, best in ((9.0, 20.0, [2]), (20.0, 15.0, [2]), (15.0, 3.0, [1, 3]), (3.0, 9.0, [1, 2, 3])):
        assert leaders.follow(2, before, now)
        assert list(leaders.rows) == best


def test_so_many_levels_are_known_and_no_more() -> None:
    column = np.array([0.0] * (MOST_LEVELS + 3))
    leaders = BestRows(column)
    for row in range(len(column)):
        assert leaders.follow(row, 0.0, 1.0 + row)

    known = [leaders.follow(row, 1.0 + row, -1.0) for row in reversed(range(len(column)))]

    assert known == [True] * MOST_LEVELS + [False] * 3
