"""How long a decision may take: a value that searching code checks between two steps.

It counts the CPU time of the deciding thread, so that a busy machine does not make decisions fail.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gangline.errors import DeadlineExceeded

POD_SECONDS = 1.0
"""CPU seconds for one pod."""
GANG_SECONDS = 5.0
"""CPU seconds for a whole pod group."""
ROOM_SECONDS = 1.25
"""CPU seconds in which plugins may make room for a group that has no placement; they do so in one stretch."""
STRETCH_SECONDS = 0.5
"""CPU seconds of one stretch of a decision on a group, before other units are decided: see `group_search`."""
AT_ONCE_SECONDS = 1.5
"""CPU seconds of the longest stretch of a decision on a group, so that a pod waits less than two seconds."""


class Deadline:
    """A number of seconds from now, by a clock; only the thread that made the deadline may check it.

    `now` is what the clock shows; without it the clock is read, which is a system call for `time.thread_time`.
    """

    __slots__ = ("_clock", "_earliest", "_end", "_held", "seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.thread_time, now: float | None = None) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = (clock() if now is None else now) + seconds
        # CPU time of a thread never runs faster than wall-clock time, which is read in a tenth of the time.
        self._earliest = time.perf_counter() + seconds if clock is time.thread_time else -math.inf
        self._held: tuple[float, float] | None = None

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() >= self._earliest and self._clock() >= self._end

    def check(self) -> None:
        """Raise DeadlineExceeded if the deadline has passed."""
        if time.perf_counter() >= self._earliest and self._clock() >= self._end:
            raise DeadlineExceeded(self.seconds)

    @property
    def left(self) -> float:
        """Seconds until the deadline passes; negative afterwards."""
        return self._end - self._clock()

    def another(self, seconds: float) -> Deadline:
        """A deadline that passes after this many seconds by the same clock, whether or not this one has passed."""
        return Deadline(seconds, self._clock)

    def at_most(self, seconds: float) -> Deadline:
        """A deadline that passes after this many seconds, or with this deadline if that is earlier."""
        left = self.left
        made = Deadline(min(seconds, left), self._clock)
        made.seconds = seconds if seconds < left else self.seconds
        return made

    @contextmanager
    def counting(self) -> Iterator[None]:
        """From the first such block on, only the time inside such blocks counts."""
        if self._held is not None:
            clock, wall = self._held
            self._end += self._clock() - clock
            self._earliest += time.perf_counter() - wall
        try:
            yield
        finally:
            self._held = (self._clock(), time.perf_counter())


NO_DEADLINE = Deadline(math.inf)
"""For work that nothing waits for."""


class DeadlineBlock:
    """A block in which a deadline counts. `exchange` makes one count, and returns the one that counted before. There is
    a block for each decision and more, and a generator takes three times as long.
    """

    __slots__ = ("_deadline", "_exchange")

    def __init__(self, exchange: Callable[[Deadline], Deadline], deadline: Deadline) -> None:
        self._exchange = exchange
        self._deadline = deadline

    def __enter__(self) -> None:
        self._deadline = self._exchange(self._deadline)

    def __exit__(self, *_: object) -> None:
        self._exchange(self._deadline)


def exceeded(error: BaseException) -> bool:
    """Whether the cause of an error is a deadline that has passed, however the error was wrapped."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DeadlineExceeded):
        cause = cause.__cause__
    return cause is not None
