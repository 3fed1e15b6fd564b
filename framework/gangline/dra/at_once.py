"""Which of many nodes have one solution for a question, told by their devices' states, which are read together.

This is for pods that go each to another node at the same time. The devices that one of them gets must not matter to the
others: each device is for one claim and one node alone. Where that is not so, the pods are asked about one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.cutting import Cut
from gangline.dra.links import Outline
from gangline.dra.rows import RowNumbers
from gangline.dra.search import SearchAnswer
from gangline.dra.solving import ProblemShape
from gangline.dra.standing import IN_USE, Standing


class SolutionKey(NamedTuple):
    """Equal for nodes that have one solution."""

    shape: ProblemShape
    state: bytes
    """The states of the devices: as `cutting.state_of`."""
    beside: bytes = b""
    """In the order `best`: the states of the devices in the outline."""
    groups: Hashable = None


def keys_of(
    standing: Standing, cuts: Sequence[Cut], outlines: Sequence[Outline | None] | None
) -> list[SolutionKey] | None:
    """The keys of nodes with these cuts and, in the order `best`, with these outlines; None if a device may be shared,
    consumes counters or, in the order `best`, may be used by several nodes.
    """
    if not all([cut.is_plain for cut in cuts]):
        return None
    states = _states_at(standing.states, [cut.devices.numbers for cut in cuts])
    if states is None:
        return None
    shapes = [cut.shape for cut in cuts]
    if outlines is None:
        return list(map(SolutionKey, shapes, states))
    known = [each for each in outlines if each is not None]
    beside = _states_at(standing.states, [each.rows for each in known])
    if beside is None or len(known) < len(cuts):
        return None
    return list(map(SolutionKey, shapes, states, beside, [each.groups for each in known]))


def _states_at(column: NDArray[np.uint8], rows: Sequence[RowNumbers]) -> list[bytes] | None:
    """By node: the states of the devices in these rows; None if shares consume capacities of one of the devices."""
    if not rows:
        return []
    states = column[np.concatenate(rows)]
    if (states & IN_USE).any():
        return None
    text, ends = states.tobytes(), list(accumulate(map(len, rows), initial=0))
    return [text[start:end] for start, end in pairwise(ends)]


def are_own(standing: Standing, nodes: Sequence[int], cuts: Sequence[Cut], answers: Sequence[SearchAnswer]) -> bool:
    """Whether each of the given devices can be used on its node alone."""
    rows = [[cut.devices.rows[at] for _, _, at in answer.given] for cut, answer in zip(cuts, answers, strict=True)]
    given = np.fromiter(chain.from_iterable(rows), np.intp)
    return bool((standing.table.node[given] == np.repeat(nodes, list(map(len, rows)))).all())
