"""Two time stamps that the deciding loop shares with the thread that renews the lease.

Reading or writing a float is atomic, so no lock is needed.
"""

from __future__ import annotations

import asyncio
import math

from gangline.api.plugin import Clock

BEAT = 1.0
"""Seconds between two beats at most."""


class Tenure:
    """Until when this process may write as the leader, in seconds of the clock's monotonic time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -math.inf
        self.term = ""
        """ELECTION/NUMBER of the last leadership of this process; the number grows with each leader."""

    def begin(self, term: str, until: float) -> None:
        """The process leads, and may write until then."""
        self.term = term
        self._until = until

    def extend(self, until: float) -> None:
        """The process may write until then."""
        self._until = until

    def end(self) -> None:
        """The process may no longer write."""
        self._until = -math.inf

    def holds(self) -> bool:
        """Whether the process may write now; checked before each write is sent."""
        return self._clock.monotonic() < self._until


class Heartbeat:
    """Says when an event loop ran last. The loop counts as hung after ``limit`` seconds without a run."""

    def __init__(self, clock: Clock, limit: float) -> None:
        self._clock = clock
        self._limit = limit
        self._beat = clock.monotonic()

    def beat(self) -> None:
        """The loop runs."""
        self._beat = self._clock.monotonic()

    async def run(self) -> None:
        """Beat for ever, in the loop that is watched."""
        while True:
            self.beat()
            await asyncio.sleep(min(BEAT, self._limit / 4))

    def complaint(self) -> str | None:
        """Why the loop counts as hung, or None."""
        age = self._clock.monotonic() - self._beat
        return f"the event loop has not turned for {age:.0f} s" if age > self._limit else None
