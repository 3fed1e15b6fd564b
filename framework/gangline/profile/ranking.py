"""Which scores outrank all others by their weights, and what that means for the nodes of a gang. Arithmetic only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gangline.state.node_view import Int64Column, Rows
from gangline.status import MAX_SCORE, ScoreColumn

Wishes = tuple[Rows, ScoreColumn]
"""Rows in ascending order, and for each the weighted sum of the scores that outrank all others."""


def outranking(weights: Mapping[str, int]) -> frozenset[str]:
    """The plugins whose scores outrank all others: one point of theirs weighs more than all other scores together.

    Empty if the weights have no such gap.
    """
    heaviest = sorted(weights, key=lambda name: -weights[name])
    lighter = sum(weights.values())
    for number, name in enumerate(heaviest[:-1], start=1):
        lighter -= weights[name]
        if weights[name] > MAX_SCORE * lighter:
            return frozenset(heaviest[:number])
    return frozenset()


def best_first(wishes: Wishes, rows: Rows, capacity: Int64Column, wanted: int) -> Int64Column:
    """The capacity of the best-scored of `rows` that together hold `wanted` pods; of all rows if they hold fewer.

    Rows that are not among the rows of the wishes hold nothing.
    """
    among, values, held = _among(wishes, rows, capacity)
    enough = int(np.searchsorted(held, wanted))
    left = np.zeros_like(capacity)
    if enough < len(among):
        among = among[values >= values[enough]]
    left[among] = capacity[among]
    return left


def worth(wishes: Wishes, rows: Rows, capacity: Int64Column, wanted: int) -> float:
    """The sum of the scores of this many pods on the best of these rows."""
    _, values, held = _among(wishes, rows, capacity)
    taken = np.diff(np.minimum(held, wanted), prepend=0)
    return float((values * taken).sum())


def _among(wishes: Wishes, rows: Rows, capacity: Int64Column) -> tuple[Rows, ScoreColumn, Int64Column]:
    """The wishes' rows that are among `rows`, the best first, with scores and the running sum of their capacity."""
    index, scores = wishes
    inside = np.isin(index, rows, assume_unique=True)
    order = np.argsort(-scores[inside], kind="stable")
    among = index[inside][order]
    return among, scores[inside][order], np.cumsum(capacity[among])
