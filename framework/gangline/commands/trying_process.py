"""Starts a process that is asked once, and reads all that it prints.

Python's own module starts a process without a copy of the scheduler's page tables (vfork). uvloop copies the page
tables, which held up a process of 4 GB for 0.16 s (this way: 2 ms).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from subprocess import DEVNULL, PIPE, Popen

MOST_BYTES = 8 * 1024 * 1024
"""Bytes that a process may print; an answer about a whole cluster names each of its pods."""


class PrintsTooMuch(Exception):
    """A process prints more than `MOST_BYTES`."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a process has printed until its end."""

    said: bytes
    status: int
    """The exit status; the negative number of a signal that has ended the process."""
    is_late: bool = False
    """Whether the process was killed because its time was over."""


class Process:
    """A process that is asked once, in a thread of its own."""

    def __init__(self, command: Sequence[str], request: bytes) -> None:
        self._command = command
        self._request = request
        self._lock = threading.Lock()
        self._started: Popen[bytes] | None = None
        self._is_over = False

    async def printed(self, seconds: float) -> Printed:
        """What the process prints until it ends; after so many seconds it is killed. Raises OSError and PrintsTooMuch.

        If this is cancelled, the process is killed, too, and has ended when this returns.
        """
        answered: asyncio.Future[Printed] = asyncio.get_running_loop().create_future()
        threading.Thread(target=self._run, args=(answered,), name="trying changes", daemon=True).start()
        try:
            in_time, _ = await asyncio.wait((answered,), timeout=seconds)
        finally:
            self.end()
            await asyncio.wait((answered,))
            answered.exception()  # read, even if the caller has gone
        return replace(answered.result(), is_late=not in_time)

    def end(self) -> None:
        """Kill the process if it has not ended. Any thread may call this."""
        with self._lock:
            self._is_over = True
            if self._started is not None:
                self._started.kill()

    def _run(self, answered: asyncio.Future[Printed]) -> None:
        """Start the process, and settle `answered` in its event loop when the process has ended."""
        try:
            settle = partial(_settle, answered, self._asked())
        except Exception as error:
            settle = partial(_settle, answered, error)
        with suppress(RuntimeError):  # the loop has been closed meanwhile
            answered.get_loop().call_soon_threadsafe(settle)

    def _asked(self) -> Printed:
        with Popen(self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
            asked, printed = process.stdin, process.stdout
            assert asked is not None and printed is not None, "both are pipes"
            with self._lock:
                self._started = process
                if self._is_over:
                    process.kill()
            with suppress(BrokenPipeError):  # the process has ended already
                asked.write(self._request)  # the process reads all of it before it prints
                asked.close()
            said = printed.read(MOST_BYTES + 1)
            if len(said) > MOST_BYTES:
                process.kill()
                raise PrintsTooMuch
            return Printed(said, process.wait())


def _settle(answered: asyncio.Future[Printed], outcome: Printed | Exception) -> None:
    if answered.done():  # its loop ends
        return
    if isinstance(outcome, Exception):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)
