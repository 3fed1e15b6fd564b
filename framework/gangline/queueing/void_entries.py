"""Drops the void entries of a heap: the entries of units that have moved on.

Code that takes entries from a heap passes over void ones, so most heaps get rid of them. A scheduler that stands by
takes no entries, while pods come and go for weeks: without this module its heaps would grow without end.
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

    That is twice the number of entries that are left, so a drop costs constant time per added entry on average.
    """
    if len(heap) <= most:
        return most
    heap[:] = [entry for entry in heap if is_valid(entry)]
    heapq.heapify(heap)
    return max(FEWEST, 2 * len(heap))
