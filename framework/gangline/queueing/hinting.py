"""Cluster events: remembered for the units in flight, and judged by hints for the units that wait.

Both have bounds, so that many events cannot stop the scheduler:
- At most MOST_KEPT events are remembered for the units in flight. If a unit was in flight for longer than the
  remembered events reach back, it is tried again as if an event helped it.
- Hints may take the share SHARE of the time, and BURST seconds at once. When this time is used up, the scheduler asks
  no hint and tries the unit again. The unit's backoff keeps such attempts rare.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gangline.api.hints import ClusterEvent
from gangline.deadline import Deadline

MOST_KEPT = 256
"""Events. Each holds an object before and after a change; an object may have annotations of 256 KiB."""
SHARE = 0.1
"""The share of the time that hints may take: CPU seconds per second of the clock."""
BURST = 0.05
"""The CPU seconds that hints may take at once."""


class Happened(msgspec.Struct):
    """One event, with the object before and after."""

    event: ClusterEvent
    old: Any
    new: Any


class Flights:
    """The units in flight, and the events that have come since each was taken."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._since: dict[str, int] = {}
        self._log: list[Happened] = []
        self._base = 0

    def __bool__(self) -> bool:
        return bool(self._since)

    def __len__(self) -> int:
        return len(self._log)

    def __iter__(self) -> Iterator[str]:
        """The units in flight, by UID."""
        return iter(self._since)

    def take(self, uid: str) -> None:
        """The unit is in flight from now on."""
        self._since[uid] = self._base + len(self._log)

    def note(self, happened: Happened) -> None:
        """Remember an event. When too many are remembered, the older half is dropped."""
        self._log.append(happened)
        if len(self._log) > self._most:
            self._forget(self._most // 2)

    def land(self, uid: str) -> list[Happened] | None:
        """The unit is no longer in flight; returns the events since it was taken, None if some were dropped."""
        start = self._since.pop(uid, None)
        if start is None:
            return []
        happened = self._log[start - self._base :] if start >= self._base else None
        # Units in flight are in the order in which they were taken: events before the first of them are of no use.
        self._forget(next(iter(self._since.values()), self._base + len(self._log)) - self._base)
        return happened

    def _forget(self, number: int) -> None:
        if number > 0:
            del self._log[:number]
            self._base += number


class HintTime:
    """The CPU time that hints may still take. The caller passes the time."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._left = BURST
        self._then = 0.0
        self._until = Deadline(0.0, clock)

    def begin(self, now: float) -> Deadline:
        """Hints are asked from now on; returns the deadline for them."""
        self._left = min(BURST, self._left + SHARE * max(0.0, now - self._then))
        self._then = now
        self._until = Deadline(self._left, self._clock)
        return self._until

    def end(self) -> None:
        """No hint is asked any more for now."""
        self._left = max(0.0, self._until.left)
