"""Tells the plugins of a new configuration about all pods that wait, a limited number at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from gangline.queueing.units import Place, Unit
from gangline.state.pods import PodInfo
from gangline.telemetry.metrics import Metrics

SLICE = 1024
"""Pods of which plugins are told at once, about; a unit is told of as a whole."""


class Telling:
    """The units of which plugins are still to be told."""

    def __init__(self, tell: Callable[[PodInfo], None], metrics: Metrics) -> None:
        self._tell = tell
        self._metrics = metrics
        self._left: deque[Unit] = deque()
        self._has_begun = asyncio.Event()

    def begin(self, units: Iterable[Unit]) -> None:
        """Tell of the first of these units, and of the others in `run`."""
        self._left = deque(units)
        self._go_on()
        if self._left:
            self._has_begun.set()

    async def run(self) -> None:
        """Tell until cancelled; others work in between."""
        while True:
            await self._has_begun.wait()
            self._has_begun.clear()
            while self._left:
                try:
                    self._go_on()
                except Exception as error:
                    self._metrics.fault("telling", error)
                await asyncio.sleep(0)

    def _go_on(self) -> None:
        seen = 0
        while self._left and seen < SLICE:
            unit = self._left.popleft()
            if unit.place is Place.GONE:
                continue
            for pod in unit.everybody():
                self._tell(pod)
                seen += 1
