"""The number of pods of each priority on each node. One comparison then shows which nodes hold no pod of lower
priority.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, PodInfo, Rows

_SMALLEST = 64


class PriorityLevels:
    """A tracker with one column of counts per priority."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over with no pods."""
        self._counts: dict[int, NDArray[np.int32]] = {}

    def add(self, pod: PodInfo, row: int) -> None:
        """Count a pod that is on row now."""
        counts = self._counts.get(pod.priority)
        if counts is None or row >= len(counts):
            counts = self._make_room(pod.priority, row)
        counts[row] += 1

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Count pods of one class that are on these rows now."""
        counts, most = self._counts.get(pods[0].priority), max(rows)
        if counts is None or most >= len(counts):
            counts = self._make_room(pods[0].priority, most)
        np.add.at(counts, rows, 1)

    def remove(self, pod: PodInfo, row: int) -> None:
        """Stop counting a pod that has left row."""
        self._counts[pod.priority][row] -= 1

    def counts_alike(self, known: PodInfo, newer: PodInfo) -> bool:
        """True: pods of one class have one priority."""
        return True

    def below(self, priority: int, size: int) -> BoolColumn:
        """For each of the first `size` rows whether it holds a pod of lower priority."""
        found = np.zeros(size, dtype=np.bool_)
        for level, counts in self._counts.items():
            if level < priority:
                known = counts[:size]
                found[: len(known)] |= known > 0
        return found

    def below_on(self, priority: int, rows: Rows) -> BoolColumn:
        """For each of these rows whether it holds a pod of lower priority."""
        found = np.zeros(len(rows), dtype=np.bool_)
        for level, counts in self._counts.items():
            if level < priority:
                known = rows < len(counts)
                found[known] |= counts[rows[known]] > 0
        return found

    def _make_room(self, priority: int, row: int) -> NDArray[np.int32]:
        grown = np.zeros(max(_SMALLEST, 2 * row), dtype=np.int32)
        before = self._counts.get(priority)
        if before is not None:
            grown[: len(before)] = before
        self._counts[priority] = grown
        return grown
