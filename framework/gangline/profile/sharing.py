"""Columns that several entries share: read-only, and replaced by another array where a value changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.state.node_view import Rows


def written(column: NDArray[Any], index: slice | Rows, fresh: NDArray[Any]) -> NDArray[Any]:
    """The column with these values at some rows, with more bits if they need them.

    This is the same array, unless it is shared and some value differs: then it is a copy, which nobody shares.
    """
    if fresh.dtype.itemsize > column.dtype.itemsize:
        column = column.astype(fresh.dtype)
    elif not column.flags.writeable:
        if np.count_nonzero(column[index] == fresh) == len(fresh):
            return column
        column = column.copy()
    column[index] = fresh
    return column
