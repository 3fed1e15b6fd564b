"""Two time stamps that the deciding loop shares with the thread that renews the lease.

Reading or writing a float is atomic, so no lock is needed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from gangline.api.plugin import Clock
from gangline.api.term import Term
from gangline.kube.outbox import LANDING

BEAT = 1.0
"""Seconds between two beats at most."""


class Tenure:
    """Until when this process may write as the leader, in seconds of the clock's monotonic time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -math.inf
        self.term = Term()
        """The current term of this process as the leader, or its last one."""
        self.is_clean = False
        """Whether all writes of the term have arrived. The leader sets this after it has made sure; a term that ends
        otherwise, by an error for example, may leave writes under way.
        """
        self.handed_over = ""
        """The record that the leader before has left to this process; see `kube.handing_over`."""
        self.hands_over: Callable[[], str] = str
        """Makes the record for the next leader; called after the last write."""

    def begin(
        self,
        election: str,
        number: int,
        began: float,
        until: float,
        handed_over: str | None = None,
        unsettled: float = LANDING,
    ) -> None:
        """The process leads since `began`, and may write until `until`: both in seconds of the clock's monotonic time.

        `handed_over` is the record of a leader that has released the lease after its last write had arrived; None if
        the lease was not released. Writes of former leaders may be under way for `unsettled` seconds.
        """
        self.handed_over = handed_over or ""
        self.is_clean = False
        self.term = Term(f"{election}/{number}", began + unsettled)
        self._until = until

    def unsettled(self) -> float:
        """For how many seconds from now writes of former leaders may be under way."""
        return min(max(self.term.settled - self._clock.monotonic(), 0.0), LANDING)

    def extend(self, until: float) -> None:
        """The process may write until `until`, in seconds of the clock's monotonic time."""
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
