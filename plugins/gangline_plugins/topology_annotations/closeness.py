"""How close nodes are to each other along the topology: the part of its levels that they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline import Domains, Rows

Values = NDArray[np.float64]


def closeness(siblings: Mapping[int, int], levels: Sequence[Domains], size: int) -> Values:
    """For each row 0..1: 1 on the node where all siblings are, 0 where no domain holds any of them."""
    rows = np.fromiter(siblings, dtype=np.intp, count=len(siblings))
    counts = np.fromiter(siblings.values(), dtype=np.float64, count=len(siblings))
    near: Values = np.bincount(rows, weights=counts, minlength=size)[:size].astype(np.float64)
    for level in levels:
        inside = level.ids[rows] >= 0
        held = np.bincount(level.ids[rows[inside]], weights=counts[inside], minlength=len(level))
        near += np.append(held, 0.0)[level.ids]
    near /= counts.sum() * (len(levels) + 1)
    return near


def compactness(rows: Rows, levels: Sequence[Domains]) -> float:
    """0..1 for a set of nodes: the part of the levels that have all of them in one domain."""
    if not levels or not len(rows):
        return 0.0
    inside = [level.ids[rows] for level in levels]
    return sum(bool(ids[0] >= 0 and (ids == ids[0]).all()) for ids in inside) / len(levels)


def spread(rows: Rows, levels: Sequence[Domains]) -> float:
    """0..1 for a set of nodes: the part of the narrowest domains that they reach into."""
    if not levels:
        return 0.0
    ids = levels[-1].ids[rows]
    return len(np.unique(ids[ids >= 0])) / max(1, len(levels[-1]))
