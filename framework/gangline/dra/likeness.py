"""Which nodes have equal problems, found with a few operations on columns, before any problem is cut out.

Two nodes are alike if their devices, in the order in which they are tried, agree in all that makes up a problem. Values
of attributes count by where in the node they occur first, as only their equality matters.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.dra.candidates import Candidates
from gangline.dra.layout import DeviceLayout
from gangline.dra.reading import CONSUMES, SHAREABLE
from gangline.dra.rows import RowNumbers, kinds
from gangline.dra.standing import IN_USE

_MOST_ROWS = 250_000
"""Devices that are compared at a time, at most."""
_FEW = 3
"""So many nodes, or fewer, are not compared: each is a group of its own."""


def alike(candidates: Candidates, layout: DeviceLayout, nodes: RowNumbers) -> Iterator[list[int]]:
    """The nodes, given by their rows, in groups with equal problems. A node that is hard to compare is in a group of
    its own.
    """
    if len(nodes) <= _FEW:
        yield from ([node] for node in nodes.tolist())
        return
    is_hard = layout.is_hard(nodes)
    yield from ([node] for node in nodes[is_hard].tolist())
    easy = nodes[~is_hard]
    for some in np.array_split(easy, 1 + layout.size_of(easy) // _MOST_ROWS):
        if len(some):
            yield from _groups(candidates, layout, some)


def _groups(candidates: Candidates, layout: DeviceLayout, nodes: RowNumbers) -> Iterator[list[int]]:
    rows, place, order = layout.of(nodes)
    matters = candidates.matter(rows)
    rows, place, order = rows[matters], place[matters], order[matters]
    starts = np.searchsorted(place, np.arange(len(nodes) + 1))
    columns = _columns(candidates, rows, place, order, starts)
    codes = kinds(columns)[0].astype(np.int32) if len(rows) else np.zeros(0, dtype=np.int32)
    in_use = np.zeros(len(nodes), dtype=np.bool_)
    in_use[place[candidates.standing.states[rows] & IN_USE > 0]] = True
    left = np.zeros(len(nodes), dtype=np.int64)
    consuming = np.unique(place[candidates.table.traits[rows] & CONSUMES > 0])
    if len(consuming):
        left[consuming] = layout.left(nodes[consuming])
    groups: dict[Hashable, list[int]] = {}
    text, ends = codes.tobytes(), (starts * codes.itemsize).tolist()
    for node, is_used, remainder, start, end in zip(
        nodes.tolist(), in_use.tolist(), left.tolist(), ends[:-1], ends[1:], strict=True
    ):
        if is_used:  # the amounts that shares consume belong to the problem, and no column has them
            yield [node]
            continue
        groups.setdefault((text[start:end], remainder), []).append(node)
    yield from groups.values()


def _columns(
    candidates: Candidates,
    rows: RowNumbers,
    place: RowNumbers,
    order: RowNumbers,
    starts: RowNumbers,
) -> Iterator[NDArray[Any]]:
    """Everything that a problem is made of, as columns over the given rows, one at a time: there may be many."""
    table, properties = candidates.table, candidates.properties
    traits = table.traits[rows] & (SHAREABLE | CONSUMES)
    for number in candidates.firsts:
        yield candidates.flags(number)[rows]
    yield candidates.standing.states[rows]
    if traits.any():
        yield traits
        yield order
        yield np.where(traits & CONSUMES > 0, properties.consumption.codes[rows], -1)
        yield np.where(traits & SHAREABLE > 0, properties.capacities.codes[rows], -1)
    for attribute in {each.attribute for rules in candidates.ask.constraints for each in rules}:
        values = properties.attribute(attribute).values[rows].astype(np.int64)
        known = np.flatnonzero(values >= 0)
        if len(known):
            cells, first = kinds([place[known], values[known]])
            values[known] = known[first[cells]] - starts[place[known]]
        yield values
