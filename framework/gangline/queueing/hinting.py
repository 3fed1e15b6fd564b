"""What happens in the cluster: kept for the units in flight, and weighed for those that wait, both within bounds.

Rules:
- As many as MOST_KEPT events are kept for units in flight. A unit that was in flight for longer than they reach back is
  told so, and is then tried again as if one of them helped it.
- Hints may take SHARE of the time, and BURST seconds at once. When that is used up a unit is not asked: it is tried
  again, which its backoff makes rare.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gangline.api.hints import ClusterEvent
from gangline.deadline import Deadline

MOST_KEPT = 256
"""Events; each holds an object as it was and as it is, which may have 256 KiB of annotations."""
SHARE = 0.1
"""Of the time on the clock that hints may take, in CPU time."""
BURST = 0.1
"""Seconds of CPU time that they may take at once."""


@dataclass(slots=True)
class Happened:
    """One event, with the object before and after."""

    event: ClusterEvent
    old: Any
    new: Any


class Flights:
    """Which units are in flight, and what has happened since each was taken."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._since: dict[str, int] = {}
        self._log: list[Happened] = []
        self._base = 0

    def __bool__(self) -> bool:
        return bool(self._since)

    def __len__(self) -> int:
        return len(self._log)

    def take(self, uid: str) -> None:
        """The unit is in flight from now on."""
        self._since[uid] = self._base + len(self._log)

    def note(self, happened: Happened) -> None:
        """This has happened; the older half of what is kept makes way when it is too much."""
        self._log.append(happened)
        if len(self._log) > self._most:
            self._forget(self._most // 2)

    def land(self, uid: str) -> list[Happened] | None:
        """The unit is no longer in flight; what happened meanwhile, None where that was more than is kept."""
        start = self._since.pop(uid, None)
        if start is None:
            return []
        happened = self._log[start - self._base :] if start >= self._base else None
        # Units in flight are in the order in which they were taken: what is older than the first is of no use.
        self._forget(next(iter(self._since.values()), self._base + len(self._log)) - self._base)
        return happened

    def _forget(self, number: int) -> None:
        if number > 0:
            del self._log[:number]
            self._base += number


class HintTime:
    """What hints may still take; time comes in with each call."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._left = BURST
        self._then = 0.0
        self._start = 0.0

    def begin(self, now: float) -> Deadline:
        """Hints are asked from now on, until the deadline."""
        self._left = min(BURST, self._left + SHARE * max(0.0, now - self._then))
        self._then = now
        self._start = self._clock()
        return Deadline(self._left, self._clock)

    def end(self) -> None:
        """No more of them for now."""
        self._left = max(0.0, self._left - (self._clock() - self._start))
