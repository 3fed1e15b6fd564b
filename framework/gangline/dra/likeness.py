"""Which nodes have equal problems, found with a few operations on columns, before any problem is cut out.

Two nodes are alike if their devices, in the order in which they are tried, agree in all that makes up a problem. Values
of attributes count by where in the node they occur first, as only their equality matters. Nodes with equally many
devices are compared at a time, in matrices with a column for each node.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from gangline.dra.candidates import Candidates
from gangline.dra.layout import DeviceLayout, LaidOut
from gangline.dra.matrices import Matrix, equal_columns, relative
from gangline.dra.properties import Codes
from gangline.dra.reading import CONSUMES, SHAREABLE
from gangline.dra.rows import RowNumbers, packed
from gangline.dra.standing import IN_USE

_MOST_ROWS = 250_000
"""Devices that are compared at a time, at most."""
_FEW = 3
"""So many nodes, or fewer, are not compared: each is a group of its own."""


class Group(NamedTuple):
    """Nodes with equal problems."""

    nodes: RowNumbers
    """The rows of the nodes."""
    content: int = -1
    """The row of a node; equal for groups that have one shape (`solving.ProblemShape`), or negative."""
    state: bytes = b""
    """With a content: the states of the devices, as in `cutting.state_of`."""


def alike(candidates: Candidates, layout: DeviceLayout, nodes: RowNumbers) -> Iterator[Group]:
    """The nodes, given by their rows, in groups with equal problems. A node that is hard to compare is in a group of
    its own.
    """
    if len(nodes) <= _FEW:
        yield from map(Group, nodes.reshape(-1, 1))
        return
    is_hard = layout.is_hard(nodes)
    yield from map(Group, nodes[is_hard].reshape(-1, 1))
    easy = nodes[~is_hard]
    for some in np.array_split(easy, 1 + layout.size_of(easy) // _MOST_ROWS):
        if len(some):
            yield from _groups(candidates, layout, some)


def _groups(candidates: Candidates, layout: DeviceLayout, nodes: RowNumbers) -> Iterator[Group]:
    laid = layout.of(nodes)
    matters = candidates.matter(laid.rows)
    if not matters.all():
        laid = LaidOut(laid.rows[matters], laid.place[matters], laid.order[matters], {})
    rows, place = laid.rows, laid.place
    lengths = np.bincount(place, minlength=len(nodes))
    starts = np.cumsum(lengths) - lengths
    left = None
    consumes = candidates.table.traits[rows] & CONSUMES > 0
    if consumes.any():
        left = np.zeros(len(nodes), dtype=np.int64)
        consuming = np.unique(place[consumes])
        left[consuming] = layout.left(nodes[consuming])
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        of_length = np.flatnonzero(lengths == length)
        if not length:
            yield Group(nodes[of_length])
            continue
        at = starts[of_length] + np.arange(length)[:, None]
        yield from _equal(candidates, nodes[of_length], laid, at, None if left is None else left[of_length])


def _equal(
    candidates: Candidates, nodes: RowNumbers, laid: LaidOut, at: Matrix, left: RowNumbers | None
) -> Iterator[Group]:
    """The groups of nodes with equally many devices: `at` has a column for each node, the places of its devices."""
    rows = np.take(laid.rows, at, mode="clip")  # faster than `laid.rows[at]`
    states, content = candidates.standing.states[rows], packed(_content(candidates, laid, rows))
    uses = list(_uses(candidates, rows, laid, at, states))
    matrix = packed([content, states, *uses])
    numbers, first = equal_columns(matrix if left is None else np.vstack([left, matrix]))
    ordered = np.argsort(numbers.astype(np.min_scalar_type(len(first))), kind="stable")  # short numbers sort faster
    ends = np.cumsum(np.bincount(numbers)).tolist()
    groups = [nodes[ordered[start:end]] for start, end in zip([0, *ends], ends, strict=False)]
    if uses:  # more than contents and states makes up the problems
        yield from map(Group, groups)
        return
    contents, of_content = equal_columns(content[:, first])
    named = nodes[first[of_content[contents]]].tolist()
    keys = [state.tobytes() for state in np.ascontiguousarray(states[:, first].T)]
    yield from (Group(each, name, key) for each, name, key in zip(groups, named, keys, strict=True))


def _content(candidates: Candidates, laid: LaidOut, rows: Matrix) -> Iterator[Matrix]:
    """What makes up the shape of a node whose devices nobody shares, and which consume no counters."""
    for number in candidates.firsts:
        yield candidates.flags(number)[rows]
    for attribute in {each.attribute for rules in candidates.ask.constraints for each in rules}:
        values = candidates.properties.attribute(attribute).values
        yield laid.relative_of(attribute, len(rows), partial(_relative, values, rows))


def _relative(values: Codes, rows: Matrix) -> Matrix:
    return relative(values[rows])


def _uses(candidates: Candidates, rows: Matrix, laid: LaidOut, at: Matrix, states: Matrix) -> Iterator[Matrix]:
    """What else makes up problems, where devices are shared or consume counters."""
    table, properties = candidates.table, candidates.properties
    traits = table.traits[rows] & (SHAREABLE | CONSUMES)
    if not traits.any() and not (states & IN_USE).any():
        return
    if traits.any():
        yield traits
        yield laid.order[at]
        yield np.where(traits & CONSUMES > 0, properties.consumption.codes[rows], -1)
    has_shares = (traits & SHAREABLE > 0) | (states & IN_USE > 0)
    if has_shares.any():
        yield np.where(has_shares, properties.capacities.codes[rows], -1)
        yield candidates.standing.consumed[rows]
