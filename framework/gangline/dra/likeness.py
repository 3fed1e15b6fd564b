"""Which nodes have equal problems, found with a few operations on columns, before any problem is cut out.

Two nodes are alike if their devices, in the order in which they are tried, agree in all that makes up a problem. Values
of attributes count by where in the node they occur first, as only their equality matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
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
_MANY = 64
"""With more devices on a node, nodes are compared one by one."""
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
    left = np.zeros(len(nodes), dtype=np.int64)
    consuming = np.unique(place[candidates.table.traits[rows] & CONSUMES > 0])
    if len(consuming):
        left[consuming] = layout.left(nodes[consuming])
    numbers = _numbers(codes, place, starts, left)
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    yield from (group.tolist() for group in np.split(nodes[order], ends))


def _numbers(codes: NDArray[np.int32], place: RowNumbers, starts: RowNumbers, left: RowNumbers) -> RowNumbers:
    """By node: a number, equal for nodes whose devices have equal codes in order, and with equal `left`."""
    lengths = np.diff(starts)
    longest = int(lengths.max(initial=0))
    if longest > _MANY:  # a device more is an array operation more
        text, ends = codes.tobytes(), (starts * codes.itemsize).tolist()
        alike: dict[tuple[bytes, int], int] = {}
        keys = zip([text[at:end] for at, end in pairwise(ends)], left.tolist(), strict=True)
        return np.array([alike.setdefault(key, len(alike)) for key in keys], dtype=np.int64)
    of_node = np.full((longest, len(left)), -1, dtype=np.int64)
    of_node[np.arange(len(codes)) - starts[place], place] = codes
    return kinds([left, *of_node])[0].astype(np.int64)


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
    states = candidates.standing.states[rows]
    for number in candidates.firsts:
        yield candidates.flags(number)[rows]
    yield states
    if traits.any():
        yield traits
        yield order
        yield np.where(traits & CONSUMES > 0, properties.consumption.codes[rows], -1)
    has_shares = (traits & SHAREABLE > 0) | (states & IN_USE > 0)
    if has_shares.any():
        yield np.where(has_shares, properties.capacities.codes[rows], -1)
        yield candidates.standing.consumed[rows]
    for attribute in {each.attribute for rules in candidates.ask.constraints for each in rules}:
        values = properties.attribute(attribute).values[rows].astype(np.int64)
        known = np.flatnonzero(values >= 0)
        if len(known):
            cells, first = kinds([place[known], values[known]])
            values[known] = known[first[cells]] - starts[place[known]]
        yield values
