"""Finds a border by bisection, with few attempts."""

from __future__ import annotations

from collections.abc import Callable


def first_that_does(count: int, would_do: Callable[[int], bool]) -> int | None:
    """The smallest number below `count` for which `would_do` is true, if it is true for all larger numbers, too.

    None if no number was found. `would_do` was true for the returned number, even if it is not monotonic.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if would_do(middle):
            high = middle
        else:
            low = middle + 1
    return low if low < count else None
