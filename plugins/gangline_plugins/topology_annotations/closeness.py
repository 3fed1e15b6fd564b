"""How close nodes are to each other: the fraction of the topology's levels in which they share a domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline import Domains, Rows

Values = NDArray[np.float64]


def closeness(siblings: Mapping[int, int], levels: Sequence[Domains], size: int) -> Values:
    """For each row 0 to 1: 1 on the node that has all siblings, 0 where no domain contains any of them."""
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
    """For a set of nodes 0 to 1: the fraction of the levels in which one domain contains all of them."""
    if not levels or not len(rows):
        return 0.0
    inside = [level.ids[rows] for level in levels]
    return sum(bool(ids[0] >= 0 and (ids == ids[0]).all()) for ids in inside) / len(levels)


def spread(rows: Rows, levels: Sequence[Domains]) -> float:
    """For a set of nodes 0 to 1: the fraction of the narrowest domains that contain any of them."""
    if not levels:
        return 0.0
    ids = levels[-1].ids[rows]
    return len(np.unique(ids[ids >= 0])) / max(1, len(levels[-1]))
