"""Percentages are exact whole numbers, however large the amounts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline_plugins.resource_scoring import ShapePoint, percent
from gangline_plugins.resource_scoring import _interpolate as interpolate


@given(st.lists(st.tuples(st.integers(0, 2**56), st.integers(0, 2**56)), min_size=1, max_size=5))
def test_a_percentage_is_rounded_down_exactly(pairs: list[tuple[int, int]]) -> None:
    whole = np.array([max(pair) for pair in pairs], dtype=np.int64)
    part = np.array([min(pair) for pair in pairs], dtype=np.int64)

    expected = [100 * p // w if w else 0 for p, w in zip(part.tolist(), whole.tolist(), strict=True)]

    assert percent(part, whole).tolist() == expected


@given(st.integers(1, 2**45), st.integers(0, 100), st.sampled_from([-1, 0, 1]))
def test_a_percentage_is_exact_next_to_a_whole_one(whole: int, percentage: int, off: int) -> None:
    part = min(whole, max(0, whole * percentage // 100 + off))

    assert percent(np.array([part]), np.array([whole])).tolist() == [100 * part // whole]


def test_between_two_points_of_a_shape_lies_a_line_and_outside_it_is_flat() -> None:
    points = [(point.utilization, point.score) for point in (ShapePoint(20, 0), ShapePoint(40, 10), ShapePoint(50, 3))]

    assert [interpolate(points, x) for x in (0, 20, 30, 40, 45, 50, 100)] == [0, 0, 5, 10, 7, 3, 3]
