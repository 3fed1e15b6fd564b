"""Has changes tried for the units that viewers of the page ask about, in a process beside the scheduler.

Rules
- One process at a time, and for a share of the time: see `trying_budget`. The process of a viewer who has gone is
  killed.
- An answer is kept for `KEEP` seconds, and nobody waits or pays for a kept answer. It does not depend on who asks; who
  may see which part of it is decided anew for each viewer (`remedies.showing`).
- The process lists the cluster with the scheduler's credentials. It shares nothing with the scheduler, so neither
  trying changes nor a fault in it concerns the scheduler's columns.
- The scheduler keeps its memory: the process gets a part of what is left of the container's limit, or is not started.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from gangline import config
from gangline.commands.trying_budget import TryingBudgets
from gangline.commands.trying_lines import TryingAnswer, TryingRequest, put_together
from gangline.commands.trying_process import MOST_BYTES, Printed, PrintsTooMuch, Process
from gangline.config import SchedulerConfiguration
from gangline.errors import AskLater, GanglineError
from gangline.process.memory import memory_left

if TYPE_CHECKING:  # loaded with the first answer
    from gangline.remedies.showing import ShownRemedies

log = logging.getLogger(__name__)

SECONDS = 20
"""Seconds that a process has, at most."""
PATIENCE = 25.0
"""Seconds for which a viewer waits, the questions before included; a listener cuts a request off after 30."""
IN_LINE = 0.6
"""The part of this time that a viewer waits for others; the rest is for the viewer's own process."""
KEEP = 30.0
MOST_KEPT = 64
MOST_BYTES_KEPT = 32 * 1024 * 1024
"""Bytes of all answers that are kept."""
MOST_WAITING = 8
"""Viewers that wait at a time."""
LEAST_MEMORY, MOST_MEMORY = 192 * 1024 * 1024, 4 * 1024 * 1024 * 1024
"""Bytes; with fewer left than the least the process is not started."""
PART = 0.75
"""The part of the memory left that the process may take."""
PAUSE = 5
"""Seconds after which to ask again, if too many ask at a time."""


class TryingFailed(GanglineError):
    """Changes could not be tried."""


@dataclass(frozen=True, slots=True)
class _KeptAnswer:
    """An answer, how many bytes it has, and when it is too old."""

    until: float
    size: int
    shown: ShownRemedies | None


class TryingApart:
    """Asked in one event loop; `close` may be called in any thread."""

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
        self._budgets = TryingBudgets(monotonic)
        self._room = asyncio.Lock()
        self._waiting = 0
        self._kept: OrderedDict[str, _KeptAnswer] = OrderedDict()
        self._process: Process | None = None
        self._is_closed = False

    async def of(self, unit: str, viewer: str) -> ShownRemedies | None:
        """What would let a unit start; None if the unit waits no longer. Raises TryingFailed and AskLater.

        If this is cancelled, because the viewer has gone, no process runs for the viewer any longer.
        """
        if (kept := self._known(unit)) is not None:
            return kept.shown
        self._check(viewer)
        until = asyncio.get_running_loop().time() + self._patience
        async with self._place(until - (1 - IN_LINE) * self._patience):
            if (kept := self._known(unit)) is not None:
                return kept.shown
            self._check(viewer)
            return (await self._asked(unit, viewer, until)).shown

    def close(self) -> None:
        """Kill the process that runs, and start no other one: the scheduler ends."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.end()

    def _known(self, unit: str) -> _KeptAnswer | None:
        kept = self._kept.get(unit)
        return kept if kept is not None and kept.until > self._monotonic() else None

    def _check(self, viewer: str) -> None:
        """Raises TryingFailed or AskLater if no process may be started for a viewer."""
        if self._is_closed:
            raise TryingFailed("the scheduler ends")
        self._budgets.check(viewer)

    @asynccontextmanager
    async def _place(self, until: float) -> AsyncIterator[None]:
        """A block in which no other question is answered. Raises AskLater if it does not begin until then."""
        if self._waiting >= MOST_WAITING:
            raise AskLater("too many questions are asked at a time", PAUSE)
        self._waiting += 1
        try:
            try:
                async with asyncio.timeout_at(until):
                    await self._room.acquire()
            except TimeoutError:
                raise AskLater("the questions of others take long", PAUSE) from None
            try:
                yield
            finally:
                self._room.release()
        finally:
            self._waiting -= 1

    async def _asked(self, unit: str, viewer: str, until: float) -> _KeptAnswer:
        left = self._left()
        memory = MOST_MEMORY if left is None else min(MOST_MEMORY, int(PART * left))
        if memory < LEAST_MEMORY:
            raise TryingFailed("the scheduler has too little memory left to try changes")
        profiles = msgspec.structs.replace(self._configuration(), extenders=())
        request = TryingRequest(unit, config.show(profiles), self._kubeconfig, SECONDS, memory)
        began = self._monotonic()
        try:
            answer = await self._answer(msgspec.json.encode(request), until)
        finally:
            self._budgets.pay(viewer, self._monotonic() - began)
        if self._is_closed:
            raise TryingFailed("the scheduler ends")
        if answer.fault:
            log.warning("changes for %r cannot be tried to the end: %s: %s", unit, answer.fault, answer.detail)
            if answer.found is None or not answer.found.remedies:
                raise TryingFailed(answer.fault)
        return self._keep(unit, answer)

    async def _answer(self, request: bytes, until: float) -> TryingAnswer:
        """The answer of a process, with a fault if it is not whole."""
        process = self._process = Process(self._command, request)
        if self._is_closed:  # `close` has not seen this process
            process.end()
        try:
            printed = await process.printed(max(0.0, until - asyncio.get_running_loop().time()))
        except OSError as error:  # too many processes, for example
            return TryingAnswer(fault="no process can be started to try changes", detail=str(error))
        except PrintsTooMuch:
            return TryingAnswer(fault="the answer is too long", detail=f"more than {MOST_BYTES} bytes")
        finally:
            self._process = None
        return _judged(printed)

    def _keep(self, unit: str, answer: TryingAnswer) -> _KeptAnswer:
        from gangline.remedies.showing import ShownRemedies

        shown = ShownRemedies(answer.found) if answer.found is not None else None
        kept = self._kept[unit] = _KeptAnswer(self._monotonic() + KEEP, answer.size, shown)
        self._kept.move_to_end(unit)
        while len(self._kept) > MOST_KEPT or sum(each.size for each in self._kept.values()) > MOST_BYTES_KEPT:
            self._kept.popitem(last=False)
        return kept


def _judged(printed: Printed) -> TryingAnswer:
    """What a process has printed, with a fault if it is not all that the process wanted to print."""
    try:
        answer = put_together(printed.said)
    except msgspec.DecodeError as error:
        return TryingAnswer(fault="trying changes has failed", detail=f"exit status {printed.status}: {error}")
    if answer.is_whole or answer.fault:
        return answer
    is_late = printed.is_late or printed.status == -signal.SIGALRM
    fault = "no change was found in the time that there is" if is_late else "trying changes has failed"
    return replace(answer, fault=fault, detail=f"exit status {printed.status}")
