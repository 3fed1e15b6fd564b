"""Watches the GPUs of the agent's node, and reports them at the start, on every change and regularly."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from gangline.clock import SystemClock
from gangline_agent import fabric, inventory, labels
from gangline_agent.publishing import Reporter
from gangline_agent.readings import Reading, Unavailable
from gangline_agent.signs import Signs

log = logging.getLogger(__name__)

RETRY = 10.0
"""Seconds to the next reading while NVML is not available."""
SLICE = 1.0
"""Seconds for which a thread waits for events; stopping the agent takes as long."""

PATIENCE = 60.0
"""Seconds after which NVML that does not answer counts as hung."""
BURST, WITHIN = 5, 5.0
"""At most so many readings in so many seconds, however many events there are. A wait for events may fail each time, and
a faulty GPU sends hundreds of events in a second; each reading is a write to the API server.
"""
T = TypeVar("T")


class Session(Protocol):
    """The methods of `nvml.Nvml`; they block."""

    @property
    def watching(self) -> bool: ...

    def read(self) -> Reading: ...

    def wait(self, seconds: float) -> bool: ...

    def close(self) -> None: ...


class Observer:
    """Reads every ``period`` seconds and after every event; the node's file systems are mounted under ``root``.

    On a node with neither a GPU nor a sign of a GPU nothing is reported. ``offer`` is told of each reading,
    without NVML of one without GPUs.
    """

    def __init__(
        self,
        session: Session,
        root: Path,
        reporter: Reporter,
        period: float,
        signs: Signs,
        clock: SystemClock | None = None,
        offer: Callable[[Reading], None] = lambda reading: None,
        patience: float = PATIENCE,
    ) -> None:
        self._patience = patience
        self._looks: deque[float] = deque(maxlen=BURST)
        """When the last readings began."""
        self._session = session
        self._root = root
        self._reporter = reporter
        self._period = period
        self._signs = signs
        self._clock = clock or SystemClock()
        self._offer = offer

    async def run(self) -> None:
        """Observes until it is cancelled."""
        try:
            while True:
                available = await self.look()
                await self._until_news(self._period if available else min(RETRY, self._period))
        finally:
            self._session.close()

    async def look(self) -> bool:
        """Reads the GPUs once and reports them; True if NVML is available or not needed."""
        self._looks.append(self._clock.monotonic())
        read = await self._asked(self._read)
        self._offer(read if isinstance(read, Reading) else Reading())
        before = self._reporter.newest
        has_gpus = isinstance(read, Reading) and bool(read.gpus)
        if before is None and not has_gpus and not await self._signs.found():
            if self._reporter.rest():
                log.info("%s: no sign of a GPU of NVIDIA, nothing is reported", self._reporter.name)
            return True
        found = await asyncio.to_thread(fabric.read, self._root)
        status = inventory.status(read, found, self._clock.now(), before)
        if before is None or inventory.differs(before, status):
            sick = [f"{device.id} ({device.reason})" for device in status.devices if device.reason]
            log.info(
                "%s: %d GPUs, unhealthy: %s; NVML: %s",
                self._reporter.name,
                status.total,
                ", ".join(sick) or "none",
                read if isinstance(read, Unavailable) else read.driver,
            )
        self._reporter.report(status, labels.labels_of(read if isinstance(read, Reading) else Reading()))
        return isinstance(read, Reading)

    async def _asked(self, ask: Callable[[], T]) -> T:
        """The answer of NVML, from a thread. A driver may hang: nothing is reported then, and the log says why."""
        asking = asyncio.ensure_future(asyncio.to_thread(ask))
        if not (await asyncio.wait((asking,), timeout=self._patience))[0]:
            log.error("NVML has not answered for %g s; until it does nothing is reported", self._patience)
            await asyncio.wait((asking,))
            log.warning("NVML answers again")
        return await asking

    def _read(self) -> Reading | Unavailable:
        try:
            return self._session.read()
        except Unavailable as error:
            return error

    async def _until_news(self, seconds: float) -> None:
        """Returns after an event that changed something, at the latest after ``seconds``."""
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > 0:
            if not self._session.watching:
                await asyncio.sleep(left)
            elif await self._asked(partial(self._session.wait, min(left, SLICE))):
                if len(self._looks) == BURST:
                    await asyncio.sleep(self._looks[0] + WITHIN - self._clock.monotonic())
                return
