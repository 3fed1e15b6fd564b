"""Which nodes have equal problems, found with a few operations on columns, before any problem is cut out.

Two nodes are alike if their devices, in the order in which they are tried, agree in all that makes up a problem. Values
of attributes count by where in the node they occur first, as only their equality matters.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.dra.candidates import Candidates
from gangline.dra.placed import Placed
from gangline.dra.pools import Condition
from gangline.dra.reading import CONSUMES, SHAREABLE
from gangline.dra.rows import RowNumbers, kinds
from gangline.dra.standing import IN_USE

_MOST_ROWS = 250_000
"""Devices that are looked at together."""
_FEW = 3
"""So many nodes are not compared."""


def alike(candidates: Candidates, nodes: Sequence[int]) -> Iterator[list[int]]:
    """The nodes, given by their rows, in groups with equal problems; a node that is hard to compare is alone."""
    if len(nodes) <= _FEW:
        yield from ([node] for node in nodes)
        return
    some: list[tuple[int, list[Placed]]] = []
    total = 0
    for node in nodes:
        pools = candidates.table.pools_of(node)
        is_hard = False
        for placed in pools:
            is_hard = is_hard or placed.selects_devices or placed.pool.condition is not Condition.USABLE
            total += len(placed.rows)
        if is_hard:
            yield [node]
            continue
        some.append((node, pools))
        if total > _MOST_ROWS:
            yield from _groups(candidates, some)
            some, total = [], 0
    yield from _groups(candidates, some)


def _groups(candidates: Candidates, some: list[tuple[int, list[Placed]]]) -> Iterator[list[int]]:
    table = candidates.table
    parts = [(place, order, placed.rows) for place, (_, pools) in enumerate(some) for order, placed in enumerate(pools)]
    if not parts:
        if some:
            yield [node for node, _ in some]
        return
    lengths = [len(rows) for _, _, rows in parts]
    rows = np.concatenate([rows for _, _, rows in parts])
    place = np.repeat([place for place, _, _ in parts], lengths)
    order = np.repeat([order for _, order, _ in parts], lengths)
    flags = [candidates.flags(candidates.kind_of.index(kind)) for kind in range(len(set(candidates.kind_of)))]
    matters = candidates.matter(rows)
    rows, place, order = rows[matters], place[matters], order[matters]
    starts = np.searchsorted(place, np.arange(len(some) + 1))
    columns = _columns(candidates, flags, rows, place, order, starts)
    codes = kinds(columns)[0].astype(np.int32) if len(rows) else np.zeros(0, dtype=np.int32)
    in_use = np.zeros(len(some), dtype=np.bool_)
    in_use[place[candidates.standing.states[rows] & IN_USE > 0]] = True
    consumes = np.zeros(len(some), dtype=np.bool_)
    consumes[place[table.traits[rows] & CONSUMES > 0]] = True
    groups: dict[Hashable, list[int]] = {}
    for at, (node, pools) in enumerate(some):
        if in_use[at]:  # what shares consume makes up the problem too
            yield [node]
            continue
        left = tuple([_left(candidates, placed) for placed in pools if placed.pool.counters]) if consumes[at] else ()
        groups.setdefault((codes[starts[at] : starts[at + 1]].tobytes(), left), []).append(node)
    yield from groups.values()


def _columns(
    candidates: Candidates,
    flags: list[NDArray[np.uint8]],
    rows: RowNumbers,
    place: RowNumbers,
    order: RowNumbers,
    starts: RowNumbers,
) -> list[NDArray[np.int64]]:
    """What makes up the problem, for each of some rows."""
    table, properties = candidates.table, candidates.properties
    traits = table.traits[rows] & (SHAREABLE | CONSUMES)
    columns: list[NDArray[np.int64]] = [each[rows].astype(np.int64) for each in flags]
    columns.append(candidates.standing.states[rows].astype(np.int64))
    if traits.any():
        columns += [traits.astype(np.int64), order]
        columns.append(np.where(traits & CONSUMES > 0, properties.consumption.codes[rows], -1))
        columns.append(np.where(traits & SHAREABLE > 0, properties.capacities.codes[rows], -1))
    for attribute in {each.attribute for rules in candidates.ask.constraints for each in rules}:
        values = properties.attribute(attribute).values[rows].astype(np.int64)
        known = np.flatnonzero(values >= 0)
        if len(known):
            cells, first = kinds([place[known], values[known]])
            values[known] = known[first[cells]] - starts[place[known]]
        columns.append(values)
    return columns


def _left(candidates: Candidates, placed: Placed) -> tuple[tuple[tuple[str, str], int], ...]:
    return tuple(sorted(candidates.standing.left(placed).items()))
