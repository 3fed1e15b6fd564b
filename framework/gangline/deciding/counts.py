"""How many of a number of like pods go to each node of a placement, by arithmetic on capacities alone.

`together` packs the pods close to each other, `apart` spreads them.

Rules:
- Pods go to the fewest domains that hold them, level by level from the widest down. Among choices with equally many
  domains, neighbouring domains are taken.
- A node that is in no domain of a level counts as a domain of its own at that level: it is close to no other node.
- This module looks at no pod, only at how many there are, and does not change the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.api.placement import Placement
from gangline.api.pod_group import Role
from gangline.state.node_view import Int64Column, Rows
from gangline.state.topology import Domains
from gangline.status import ScoreColumn

Counts = NDArray[np.int64]
"""For each of the given rows the number of pods that it takes."""


def together(
    rows: Rows, capacity: Int64Column, wanted: int, levels: Sequence[Domains], scores: ScoreColumn | None = None
) -> Counts:
    """Take the fewest domains of each level that hold `wanted` pods, and the fewest nodes in the last domain.

    `capacity` and `scores` have one value per row of the cluster. With `scores`, the nodes of the last domain are taken
    by score, not by how much they hold. If all rows together hold fewer pods, each row takes what it holds.
    """
    counts = np.zeros(len(rows), dtype=np.int64)
    holds = capacity[rows]
    inside = np.flatnonzero(holds)
    for level in levels:
        if int(holds[inside].sum()) <= wanted:
            break
        inside, wanted = _narrowed(inside, rows, holds, wanted, level, counts)
    _fill_nodes(inside, rows, holds, wanted, scores, counts)
    return counts


def apart(rows: Rows, capacity: Int64Column, wanted: int, level: Domains | None) -> Counts:
    """Give each node one pod, taking the domains of `level` in turn, before any node gets a second pod."""
    counts = np.zeros(len(rows), dtype=np.int64)
    holds = np.minimum(capacity[rows], wanted)
    turn = _turns(rows, level)
    taken = 0
    while taken < wanted and (open_ := np.flatnonzero(holds > counts)).size:
        chosen = open_[np.lexsort((open_, turn[open_]))][: wanted - taken]
        counts[chosen] += 1
        taken += len(chosen)
    return counts


def _narrowed(
    inside: Rows, rows: Rows, holds: Int64Column, wanted: int, level: Domains, counts: Counts
) -> tuple[Rows, int]:
    """Take the fewest domains of a level, and fill all of them but the last.

    Returns the places in `rows` of the last domain's rows, and the number of pods that are left for it.
    """
    ids = level.ids[rows[inside]]
    if ids[0] >= 0 and np.count_nonzero(ids == ids[0]) == len(ids):
        return inside, wanted  # there is one domain to choose from
    domain, order = _domains_of(rows[inside], level)
    sums = np.bincount(domain, weights=holds[inside]).astype(np.int64)
    chosen = _fewest(sums, order, wanted)
    last = _last_to_fill(chosen, sums, wanted)
    full = np.isin(domain, chosen) & (domain != last)
    counts[inside[full]] = holds[inside[full]]
    return inside[domain == last], wanted - int(holds[inside[full]].sum())


def _domains_of(rows: Rows, level: Domains) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row the number of its domain, counted from 0 without gaps; for each domain its rank along the level."""
    ids = level.ids[rows].astype(np.int64)
    alone = ids < 0
    ids[alone] = len(level) + np.arange(int(alone.sum()))
    unique, domain = np.unique(ids, return_inverse=True)
    known = unique < len(level)
    order = unique.copy()
    order[known] = level.order[unique[known]]
    return domain, order


def _fewest(sums: Int64Column, order: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    """The domains to take: one that just holds all pods, else neighbours, else the largest ones."""
    enough = np.flatnonzero(sums >= wanted)
    if len(enough):
        return enough[np.lexsort((order[enough], sums[enough]))][:1]
    largest = np.lexsort((order, -sums))
    number = int(np.searchsorted(np.cumsum(sums[largest]), wanted)) + 1
    line = np.argsort(order)
    filled = np.concatenate(([0], np.cumsum(sums[line])))
    held = filled[number:] - filled[:-number]
    neighbours = order[line[number - 1 :]] - order[line[: len(held)]] == number - 1
    fitting = np.flatnonzero((held >= wanted) & neighbours)
    if len(fitting):
        start = fitting[np.argmin(held[fitting])]
        return line[start : start + number]
    return largest[:number]


def _last_to_fill(chosen: NDArray[np.int64], sums: Int64Column, wanted: int) -> int:
    """The chosen domain that is not filled up: the smallest one that holds what the others leave."""
    spare = int(sums[chosen].sum()) - wanted
    fitting = chosen[sums[chosen] > spare]
    return int(fitting[np.argmin(sums[fitting])])


def _fill_nodes(
    inside: Rows, rows: Rows, holds: Int64Column, wanted: int, scores: ScoreColumn | None, counts: Counts
) -> None:
    if scores is not None:
        order = inside[np.lexsort((inside, -scores[rows[inside]]))]
    else:
        order = inside[np.lexsort((inside, -holds[inside]))]
    filled = np.cumsum(holds[order])
    number = int(np.searchsorted(filled, wanted))
    counts[order[:number]] = holds[order[:number]]
    left = wanted - (int(filled[number - 1]) if number else 0)
    if number < len(order) and left > 0:
        rest = order[number:]
        fitting = rest[holds[rest] >= left]
        last = fitting[0] if scores is not None else fitting[np.argmin(holds[fitting])]
        counts[last] = left


def _turns(rows: Rows, level: Domains | None) -> NDArray[np.int64]:
    """For each row the number of rows of its domain that come before it."""
    if level is None:
        return np.zeros(len(rows), dtype=np.int64)
    domain, _ = _domains_of(rows, level)
    order = np.argsort(domain, kind="stable")
    starts = np.searchsorted(domain[order], np.arange(int(domain.max(initial=-1)) + 1))
    turns = np.empty(len(rows), dtype=np.int64)
    turns[order] = np.arange(len(rows)) - starts[domain[order]]
    return turns


def held_by(placements: Sequence[Placement], roles: Sequence[Role]) -> Int64Column:
    """How many members of each role fit on each placement, by their capacities: roles x placements."""
    ends = np.cumsum([len(placement.rows) for placement in placements])
    rows = np.concatenate([placement.rows for placement in placements])
    held = np.zeros((len(roles), len(placements)), dtype=np.int64)
    for number, role in enumerate(roles):
        until = np.concatenate(([0], np.cumsum(role.capacity[rows])))[np.concatenate(([0], ends))]
        held[number] = np.diff(until)
    return held
