"""A process that is told to stop ends in time, whatever the tasks and threads of plugins do about it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

LIMIT = 25.0
"""Seconds from the signal to the end of the process: less than the 30 s after which the kubelet kills it by default."""
SAYING = 1.0
"""Seconds that writing the last line of the log may take; then the process ends without the line."""
NAMED = 8
"""Tasks and threads that the last line of the log names, at most."""


class LastResort:
    """Ends the process so many `seconds` after `start`, unless the block ends before."""

    def __init__(self, seconds: float = LIMIT) -> None:
        self._seconds = seconds
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def start(self) -> None:
        """Begin to count, because the process is told to stop. Call this in the event loop whose tasks may go on."""
        self._timer = threading.Timer(self._seconds, self._end, (asyncio.get_running_loop(),))
        self._timer.daemon = True
        self._timer.start()

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            saying = threading.Thread(target=self._say, args=(loop,), daemon=True)
            saying.start()
            saying.join(SAYING)
        finally:
            os._exit(1)

    def _say(self, loop: asyncio.AbstractEventLoop) -> None:
        what = ", ".join(going_on(loop)) or "the interpreter"
        log.warning("stopped %g s ago, and these still go on: %s; the process ends without them", self._seconds, what)
        logging.shutdown()


def going_on(loop: asyncio.AbstractEventLoop) -> list[str]:
    """The tasks of a loop and the threads that keep the process from ending, by name; any thread may ask."""
    tasks = sorted(named(task) for task in asyncio.all_tasks(loop))
    threads = sorted(f"thread {thread.name}" for thread in threading.enumerate() if not thread.daemon)
    found = tasks + threads
    return found if len(found) <= NAMED else [*found[:NAMED], f"{len(found) - NAMED} more"]


def named(task: asyncio.Task[object]) -> str:
    """The name of a task, and the function that it runs."""
    coroutine = task.get_coro()
    return f"{task.get_name()} ({getattr(coroutine, '__qualname__', coroutine)})"
