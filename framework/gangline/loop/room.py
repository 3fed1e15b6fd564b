"""Waits while there is no room for more decisions, and rests meanwhile.

While dozens of requests are under way, an answer or a watch event comes every few hundred microseconds. A process that
wakes for each of them pays each time for system calls, a TLS record and a turn of the event loop. So it rests for some
milliseconds before it looks again, and handles all that has come.

A rest blocks the thread, as a network card holds its interrupts back. No pod is bound later: nothing is decided while
enough decisions wait, and the API server still has most of the requests before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

REST = 0.01
"""Seconds of one. It saves a fifth of the CPU time of a process that binds 1,100 pods a second, and a twentieth if the
API server shares its two cores. In 30 ms, an API server answers so many of 64 requests that too few are left."""


class BindingRoom:
    """Whether there is room for more decisions to carry out."""

    def __init__(self, rest: Callable[[], None] | None = None) -> None:
        """Without `rest` there are no rests."""
        self._rest = rest
        self._is_there = True
        self._changed = asyncio.Event()

    def is_there(self, is_there: bool) -> None:
        """Say whether there is room now."""
        self._is_there = is_there
        self._changed.set()

    def work_ended(self) -> None:
        """Say that a piece of work has ended, which may not make room yet."""
        self._changed.set()

    async def wait(self) -> None:
        """Return as soon as there is room; one caller at a time. While work ends, this rests."""
        while not self._is_there:
            self._changed.clear()
            await self._changed.wait()
            if not self._is_there and self._rest is not None:
                self._rest()


class Rests:
    """A rest of this thread, unless it has had much to do since the last one."""

    def __init__(self, sleep: Callable[[float], None], stopwatch: Callable[[], float] = time.perf_counter) -> None:
        self._sleep = sleep
        self._stopwatch = stopwatch
        self._ended = stopwatch()

    def __call__(self) -> None:
        """Rest. After work that took longer than a rest, messages have gathered anyway."""
        if self._stopwatch() - self._ended < REST:
            self._sleep(REST)
        self._ended = self._stopwatch()
