"""Carry out decisions: wait on permit, pre-bind, bind, post-bind; at most so many at a time.

What a decision becomes is handed to an `Outcome` listener; this module changes neither cache nor queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gangline.metrics import Metrics
from gangline.plugin import Clock
from gangline.scheduling import Decision
from gangline.status import Status, unschedulable
from gangline.waiting import WaitingPod, WaitingPods

log = logging.getLogger(__name__)

Listener = Callable[[Decision, Status], None]
"""Called once per decision with SUCCESS, or with what went wrong."""


class Binder:
    """Runs binding cycles; pods that wait at permit do not count against `concurrency`."""

    def __init__(
        self, waiting: WaitingPods, listener: Listener, clock: Clock, metrics: Metrics, concurrency: int = 64
    ) -> None:
        self._waiting = waiting
        self._listener = listener
        self._clock = clock
        self._succeeded = metrics.binding.series("success")
        self._failed = metrics.binding.series("failure")
        self._concurrency = concurrency
        self._ready: asyncio.Queue[Decision] = asyncio.Queue()
        self._group: asyncio.TaskGroup | None = None
        self._early: list[Decision] = []
        self._busy = 0
        self._room = asyncio.Event()
        self._room.set()

    async def run(self) -> None:
        """Bind for ever; cancelled to stop. Binding cycles that are under way then are cut off."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for decision in self._early:
                group.create_task(self._hold(decision))
            for _ in range(self._concurrency):
                group.create_task(self._work())

    @property
    def pending(self) -> int:
        """Decisions that are not yet carried out, those that wait at permit left out."""
        return self._ready.qsize() + self._busy

    async def has_room(self) -> None:
        """Wait until so few decisions are pending that another one will soon be carried out."""
        await self._room.wait()

    def submit(self, decision: Decision) -> None:
        """Carry out a decision."""
        if not decision.holds:
            self._enqueue(decision)
        elif self._group is not None:
            self._group.create_task(self._hold(decision))
        else:
            self._early.append(decision)

    def _enqueue(self, decision: Decision) -> None:
        self._ready.put_nowait(decision)
        if self.pending >= 4 * self._concurrency:
            self._room.clear()

    async def _hold(self, decision: Decision) -> None:
        """Wait until every plugin allows the pod, one rejects it, or the first time-out passes."""
        waiting = WaitingPod(decision.pod, decision.node, set(decision.holds))
        self._waiting.add(waiting)
        plugin, seconds = min(decision.holds.items(), key=lambda hold: hold[1])
        try:
            async with asyncio.timeout(seconds):
                status = await waiting.verdict()
        except TimeoutError:
            status = unschedulable(f'rejected due to timeout after waiting {seconds:g}s at plugin "{plugin}"').by(
                plugin
            )
        finally:
            self._waiting.remove(decision.pod.uid)
        if status.is_success:
            self._enqueue(decision)
        else:
            self._listener(decision, status)

    async def _work(self) -> None:
        while True:
            decision = await self._ready.get()
            self._busy += 1
            try:
                await self._carry_out(decision)
            finally:
                self._busy -= 1
                if self.pending < 2 * self._concurrency:
                    self._room.set()

    async def _carry_out(self, decision: Decision) -> None:
        runtime, cycle, pod, node = decision.runtime, decision.cycle, decision.pod, decision.node
        start = self._clock.monotonic()
        status = await runtime.pre_bind(cycle, pod, node)
        if status.is_success:
            status = await runtime.bind(cycle, pod, node)
        series = self._succeeded if status.is_success else self._failed
        series.observe(self._clock.monotonic() - start)
        self._listener(decision, status)
        if status.is_success:
            for failure in await runtime.post_bind(cycle, pod, node):
                log.warning("pod %s is bound, but %s", pod.key, failure.message)
