"""Numbers for the values of a column, limited to values that some row has, because nodes may change values often."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


def renumber(values: list[T], column: NDArray[np.int32]) -> dict[T, int]:
    """Drop the values that no row of the column has, except the first; returns the new number of each kept value.

    The list and the numbers in the column are changed in place.
    """
    used, numbers = np.unique(np.append(column, 0), return_inverse=True)
    values[:] = [values[number] for number in used.tolist()]
    column[:] = numbers[:-1]
    return {value: number for number, value in enumerate(values)}
