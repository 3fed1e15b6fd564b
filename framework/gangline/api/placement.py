"""A set of nodes on which a whole pod group could be placed."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass

import numpy as np

from gangline.state.node_view import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A candidate: its name ("rack r7") and the rows of its nodes.

    All placements of one `tier` are tried before those of the next; within a tier the best score comes first.
    """

    name: str
    rows: Rows
    tier: int = 0

    def __post_init__(self) -> None:
        rows = self.rows
        if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError(f"the rows of a placement are an array of whole numbers, not {reprlib.repr(rows)}")
        if not isinstance(self.name, str) or not isinstance(self.tier, int):
            raise TypeError("a placement has a text as its name and a whole number as its tier")
