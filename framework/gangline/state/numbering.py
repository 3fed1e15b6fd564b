"""Values that rows have by number, kept to those that some row has: what nodes say may change again and again."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


def renumber(values: list[T], column: NDArray[np.int32]) -> dict[T, int]:
    """Drop the values that no row of the column has, but for the first; returns the number of each that stays.

    Both the list and the numbers in the column are changed in place.
    """
    used, numbers = np.unique(np.append(column, 0), return_inverse=True)
    values[:] = [values[number] for number in used.tolist()]
    column[:] = numbers[:-1]
    return {value: number for number, value in enumerate(values)}
