"""Drops the void entries of a heap: those of units that have moved on.

Whoever takes the entries of a heap passes over the void ones. A scheduler that stands by takes none, and pods come and
go for weeks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeVar

FEWEST = 1024
"""With fewer entries, void ones do not matter."""

Entry = TypeVar("Entry", bound=tuple[Any, ...])


def without_void(heap: list[Entry], is_valid: Callable[[Entry], bool], most: int) -> int:
    """Drop the void entries of a heap that has more than `most` entries; returns the next `most`.

    So an entry costs the same on average, however many there are.
    """
    if len(heap) <= most:
        return most
    heap[:] = [entry for entry in heap if is_valid(entry)]
    heapq.heapify(heap)
    return max(FEWEST, 2 * len(heap))
