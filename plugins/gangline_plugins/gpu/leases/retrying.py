"""When work that has failed is tried again: soon, and then after pauses that double."""

from __future__ import annotations

import math
from itertools import islice
from typing import Generic, TypeVar

from gangline import Clock

FIRST, LONGEST = 1.0, 30.0
"""Seconds until work is tried again after its first failure, and the longest time until another try."""
MOST = 10_000
"""At most this many failures are remembered; regular sweeps find the others."""
AT_ONCE = 256
"""At most this many failures are tried at once."""

K = TypeVar("K")


class Retries(Generic[K]):
    """Work that has failed or could not be done yet, by key, and when to try it again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[K, float] = {}
        self._pauses: dict[K, float] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._pauses

    def failed(self, key: K) -> bool:
        """The work has failed, or cannot be done yet. Returns True at its first failure, which is the one to log."""
        before = self._pauses.get(key)
        if before is None and len(self._pauses) >= MOST:
            return True
        pause = self._pauses[key] = FIRST if before is None else min(2 * before, LONGEST)
        self._due[key] = self._clock.monotonic() + pause
        return before is None

    def ended(self, key: K) -> None:
        """The work is done, or not needed any more."""
        self._pauses.pop(key, None)
        self._due.pop(key, None)

    def take(self) -> list[K]:
        """The keys to try now, at most AT_ONCE. Each is returned once, and again only after it has failed again."""
        now = self._clock.monotonic()
        due = list(islice((key for key, at in self._due.items() if at <= now), AT_ONCE))
        for key in due:
            del self._due[key]
        return due

    @property
    def next_at(self) -> float:
        """When something is to be tried, in seconds of the clock's monotonic time; infinite if nothing is."""
        return min(self._due.values(), default=math.inf)
