"""How long a decision may take, as a value that whoever searches looks at between two steps.

It counts the CPU time of the thread that decides, so that a busy machine does not make decisions fail.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gangline.errors import DeadlineExceeded

POD_SECONDS = 1.0
"""Of CPU time for one pod."""
GANG_SECONDS = 5.0
"""Of CPU time for a whole pod group."""
ROOM_SECONDS = 1.25
"""Of CPU time in which plugins may make room for a group that fits nowhere; they do so at once."""
STRETCH_SECONDS = 0.5
"""Of CPU time that a decision on a group has at once, before others are decided: see `group_search`."""
AT_ONCE_SECONDS = 1.5
"""Of CPU time that a decision on a group has at once at most, so that a pod waits for less than two seconds."""


class Deadline:
    """So many seconds from now, by a clock; the thread that made it is the one that looks."""

    __slots__ = ("_clock", "_earliest", "_end", "_held", "seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.thread_time) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds
        # The CPU time of a thread never runs faster than the time on the wall, and to read that costs a tenth.
        self._earliest = time.perf_counter() + seconds if clock is time.thread_time else -math.inf
        self._held: tuple[float, float] | None = None

    @property
    def passed(self) -> bool:
        """Whether it has passed."""
        return time.perf_counter() >= self._earliest and self._clock() >= self._end

    def check(self) -> None:
        """Raise DeadlineExceeded when it has passed."""
        if time.perf_counter() >= self._earliest and self._clock() >= self._end:
            raise DeadlineExceeded(self.seconds)

    def at_most(self, seconds: float) -> Deadline:
        """One that passes so many seconds from now, if this one does not pass before."""
        left = self._end - self._clock()
        made = Deadline(min(seconds, left), self._clock)
        made.seconds = seconds if seconds < left else self.seconds
        return made

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Time counts within such blocks alone, from the first one on."""
        if self._held is not None:
            clock, wall = self._held
            self._end += self._clock() - clock
            self._earliest += time.perf_counter() - wall
        try:
            yield
        finally:
            self._held = (self._clock(), time.perf_counter())


NO_DEADLINE = Deadline(math.inf)
"""For what nobody waits for."""


def exceeded(error: BaseException) -> bool:
    """Whether a deadline that has passed is behind an error, whoever has wrapped it on the way."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DeadlineExceeded):
        cause = cause.__cause__
    return cause is not None
