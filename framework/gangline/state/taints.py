"""The taint sets of the nodes, by number: most nodes share a few sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.model import Taint
from gangline.state.numbering import renumber

MOST_HISTORY = 256
"""Taint sets that are kept although no node has them any more."""


class TaintKey(NamedTuple):
    """A taint as a value."""

    key: str
    value: str
    effect: str


class TaintSets:
    """All taint sets that exist; 0 is the empty one."""

    def __init__(self) -> None:
        self.sets: list[tuple[TaintKey, ...]] = [()]
        self._numbers: dict[tuple[TaintKey, ...], int] = {(): 0}

    def number(self, taints: Iterable[Taint], column: NDArray[np.int32], nodes: int) -> int:
        """The number of a taint set. If there are far more sets than nodes, the numbers in the column may change."""
        key = tuple(TaintKey(taint.key, taint.value, taint.effect) for taint in taints)
        number = self._numbers.get(key)
        if number is None and len(self.sets) > 2 * nodes + MOST_HISTORY:
            self._numbers = renumber(self.sets, column)
        if number is None:
            number = self._numbers[key] = len(self.sets)
            self.sets.append(key)
        return number
