"""Has changes tried for the units that viewers of the page ask about, in a process beside the scheduler.

Rules
- One process at a time. An answer is kept for `KEEP` seconds, for all viewers, and nobody waits for a kept answer.
- The process lists the cluster with the scheduler's credentials. It shares nothing with the scheduler, so neither
  trying changes nor a fault in it concerns the scheduler's columns.
- The scheduler keeps its memory: the process gets a part of what is left of the container's limit, or is not started.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from subprocess import DEVNULL, PIPE, Popen
from typing import TYPE_CHECKING

import msgspec

from gangline import config
from gangline.config import SchedulerConfiguration
from gangline.errors import GanglineError
from gangline.process.memory import memory_left

if TYPE_CHECKING:  # loaded with the first answer
    from gangline.remedies.showing import ShownRemedies

log = logging.getLogger(__name__)

SECONDS = 20
"""Seconds that a process has."""
PATIENCE = 25.0
"""Seconds for which a viewer waits, the questions before included; a listener cuts a request off after 30."""
KEEP = 30.0
MOST_KEPT = 64
MOST_BYTES, MOST_BYTES_KEPT = 8 * 1024 * 1024, 32 * 1024 * 1024
"""Bytes of one answer, and of all answers that are kept; an answer about a whole cluster names each of its pods."""
MOST_WAITING = 8
"""Viewers that wait at a time."""
LEAST_MEMORY, MOST_MEMORY = 192 * 1024 * 1024, 4 * 1024 * 1024 * 1024
"""Bytes; with fewer left than the least the process is not started."""
PART = 0.75
"""The part of the memory left that the process may take."""


class TryingRequest(msgspec.Struct, frozen=True):
    """A question."""

    unit: str
    """The identity of a unit: the key of its group, or the UID of its pod."""
    configuration: str
    """The profiles that judge, as YAML."""
    kubeconfig: str | None
    seconds: int
    """After which the process ends."""
    memory: int
    """Bytes that the process may take, those included that it has when it reads this."""


class TryingAnswer(msgspec.Struct, frozen=True):
    """The answer to it."""

    found: msgspec.Raw = msgspec.Raw(b"null")
    """Remedies, or null if the unit waits no longer, or if there is a fault."""
    fault: str = ""
    """Why there is no answer, in words for viewers."""
    detail: str = ""
    """More of the fault, for the log."""


class TryingFailed(GanglineError):
    """Changes could not be tried."""


class _TooMuch(Exception):
    """A process prints more than `MOST_BYTES`."""


@dataclass(frozen=True, slots=True)
class _KeptAnswer:
    """An answer, how many bytes it has, and when it is too old."""

    until: float
    size: int
    shown: ShownRemedies | None


class TryingApart:
    """Asked in one event loop."""

    def __init__(
        self,
        configuration: Callable[[], SchedulerConfiguration],
        kubeconfig: str | None,
        command: Sequence[str] = (sys.executable, "-P", "-m", "gangline.commands.trying"),
        left: Callable[[], int | None] = memory_left,
        monotonic: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
    ) -> None:
        """``left`` says how many bytes of memory are left, None if there is no limit."""
        self._patience = patience
        self._configuration = configuration
        self._kubeconfig = kubeconfig
        self._command = command
        self._left = left
        self._monotonic = monotonic
        self._room = asyncio.Lock()
        self._waiting = 0
        self._kept: OrderedDict[str, _KeptAnswer] = OrderedDict()

    async def of(self, unit: str) -> ShownRemedies | None:
        """What would let a unit start; None if the unit waits no longer. Raises TryingFailed."""
        if (kept := self._known(unit)) is not None:
            return kept.shown
        if self._waiting >= MOST_WAITING:
            raise TryingFailed("too many questions are asked at a time")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience), self._room:
                return (self._known(unit) or await self._asked(unit)).shown
        except TimeoutError:
            raise TryingFailed(f"there is no answer within {self._patience:g} s") from None
        finally:
            self._waiting -= 1

    def _known(self, unit: str) -> _KeptAnswer | None:
        kept = self._kept.get(unit)
        return kept if kept is not None and kept.until > self._monotonic() else None

    async def _asked(self, unit: str) -> _KeptAnswer:
        left = self._left()
        memory = MOST_MEMORY if left is None else min(MOST_MEMORY, int(PART * left))
        if memory < LEAST_MEMORY:
            raise TryingFailed("the scheduler has too little memory left to try changes")
        profiles = msgspec.structs.replace(self._configuration(), extenders=())
        request = TryingRequest(unit, config.show(profiles), self._kubeconfig, SECONDS, memory)
        answer, found = await self._answer(msgspec.json.encode(request))
        if answer.fault:
            log.warning("changes for %s cannot be tried: %s: %s", unit, answer.fault, answer.detail)
            raise TryingFailed(answer.fault)
        kept = self._kept[unit] = _KeptAnswer(self._monotonic() + KEEP, len(answer.found), found)
        self._kept.move_to_end(unit)
        while len(self._kept) > MOST_KEPT or sum(each.size for each in self._kept.values()) > MOST_BYTES_KEPT:
            self._kept.popitem(last=False)
        return kept

    async def _answer(self, request: bytes) -> tuple[TryingAnswer, ShownRemedies | None]:
        """The answer of a process, and what it has found."""
        try:
            said, status = await self._said(request)
        except OSError as error:  # too many processes, for example
            return TryingAnswer(fault="no process can be started to try changes", detail=str(error)), None
        except _TooMuch:
            return TryingAnswer(fault="the answer is too long", detail=f"more than {MOST_BYTES} bytes"), None
        try:
            answer = msgspec.json.decode(said, type=TryingAnswer)
            return answer, shown(answer.found)
        except msgspec.DecodeError as error:
            is_late = status == -signal.SIGALRM
            fault = f"changes cannot be tried in {SECONDS} s" if is_late else "trying changes has failed"
            return TryingAnswer(fault=fault, detail=f"exit status {status}: {error}"), None

    async def _said(self, request: bytes) -> tuple[bytes, int]:
        """What a process prints, and its exit status. Raises OSError and _TooMuch."""
        answered: asyncio.Future[tuple[bytes, int]] = asyncio.get_running_loop().create_future()
        process = _Process(self._command, request)
        threading.Thread(target=process.run, args=(answered,), name="trying changes", daemon=True).start()
        try:
            return await asyncio.shield(answered)
        except asyncio.CancelledError:
            process.end()
            with suppress(OSError, _TooMuch):
                await answered  # so that the next process is started after the end of this one
            raise


class _Process:
    """A process that is asked once, in a thread.

    Python's own module starts a process without a copy of the scheduler's page tables (vfork). uvloop copies the page
    tables, which held up a process of 4 GB for 0.16 s (this way: 2 ms).
    """

    def __init__(self, command: Sequence[str], request: bytes) -> None:
        self._command = command
        self._request = request
        self._lock = threading.Lock()
        self._started: Popen[bytes] | None = None
        self._is_over = False

    def run(self, answered: asyncio.Future[tuple[bytes, int]]) -> None:
        """Start the process, and settle `answered` in its event loop when the process has ended."""
        try:
            settle = partial(_settle, answered, self._asked())
        except Exception as error:
            settle = partial(_settle, answered, error)
        with suppress(RuntimeError):  # the loop has been closed meanwhile
            answered.get_loop().call_soon_threadsafe(settle)

    def end(self) -> None:
        """Kill the process if it has not ended."""
        with self._lock:
            self._is_over = True
            if self._started is not None:
                self._started.kill()

    def _asked(self) -> tuple[bytes, int]:
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
                raise _TooMuch
            return said, process.wait()


def _settle(answered: asyncio.Future[tuple[bytes, int]], outcome: tuple[bytes, int] | Exception) -> None:
    if answered.done():  # its loop ends
        return
    if isinstance(outcome, Exception):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)


def shown(found: bytes | msgspec.Raw) -> ShownRemedies | None:
    """What a process has found."""
    from gangline.remedies import Remedies
    from gangline.remedies.showing import ShownRemedies

    remedies = msgspec.json.decode(found, type=Remedies | None)
    return ShownRemedies(remedies) if remedies is not None else None
