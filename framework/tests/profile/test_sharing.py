"""A column that is shared is not written, and is replaced only if a value changes."""

from __future__ import annotations

import numpy as np

from gangline.profile.sharing import written
from gangline.status import read_only

ROWS = np.array([2, 0])


def test_a_column_that_nobody_shares_is_written() -> None:
    column = np.zeros(3)

    assert written(column, ROWS, np.array([1.0, 2.0])) is column
    assert column.tolist() == [2.0, 0.0, 1.0]


def test_a_shared_column_stays_while_its_values_do_and_is_copied_when_one_changes() -> None:
    shared = read_only(np.array([2.0, 0.0, 1.0]))

    assert written(shared, ROWS, np.array([1.0, 2.0])) is shared
    changed = written(shared, ROWS, np.array([1.0, 3.0]))
    assert changed.tolist() == [3.0, 0.0, 1.0] and shared.tolist() == [2.0, 0.0, 1.0]
    assert written(changed, slice(1, 2), np.array([7.0])) is changed


def test_verdicts_with_more_bits_widen_the_column() -> None:
    shared = read_only(np.array([1, 0, 0], dtype=np.uint8))

    widened = written(shared, slice(2, 3), np.array([1 << 40], dtype=np.uint64))

    assert widened.tolist() == [1, 0, 1 << 40] and shared.tolist() == [1, 0, 0]
