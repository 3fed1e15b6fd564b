"""Plays a day against an API server: does what users, controllers and a cloud do, as far as a scheduler can see it.

Users submit workloads when they come. Controllers delete what has ended, start anew what was evicted or has lost a
node, and delete pods whose node is gone. The cloud takes nodes away and gives them back.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from gangline_e2e.api import Api
from gangline_e2e.day import fabric as floor
from gangline_e2e.day.judge import Judge
from gangline_e2e.day.objects import gang_of, paths
from gangline_e2e.day.plan import Loss
from gangline_e2e.day.workload import Workload
from gangline_e2e.workloads import Manifest

T = TypeVar("T")
HANDS = 48
"""Requests that are under way at the same time."""
BACKLOG = 300
"""While more pods than this wait although they fit, no more come, so the day is as fast as this machine can play it."""


class Clock:
    """The time of the day, in seconds; it stands still while the player holds it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._held_since = 0.0
        self._goes = asyncio.Event()
        self._goes.set()
        self.held_s = 0.0
        """For how many seconds the clock was held, until it last went on."""

    def now(self) -> float:
        """The time of day."""
        until = time.monotonic() if self._goes.is_set() else self._held_since
        return until - self._began - self.held_s

    def hold(self) -> None:
        """Stand still."""
        if self._goes.is_set():
            self._held_since = time.monotonic()
            self._goes.clear()

    def go_on(self) -> None:
        """Stand still no longer."""
        if not self._goes.is_set():
            self.held_s += time.monotonic() - self._held_since
            self._goes.set()

    async def until(self, moment: float) -> None:
        """Let the day pass until a moment."""
        while (left := moment - self.now()) > 0:
            await self._goes.wait()
            await asyncio.sleep(left)


class Player:
    """Plays a day that begins now. The player reads from the judge what has become of workloads."""

    def __init__(self, api: Api, judge: Judge) -> None:
        self._api = api
        self._judge = judge
        self._hands = asyncio.Semaphore(HANDS)
        self._runs = itertools.count(1)
        self._changed = asyncio.Event()
        self.clock = Clock()

    def wake(self) -> None:
        """The judge knows something new: wake the controllers, and hold the clock while too many pods wait."""
        self._changed.set()
        if self._judge.backlog() > BACKLOG:
            self.clock.hold()
        else:
            self.clock.go_on()

    async def users(self, workloads: Iterable[Workload]) -> None:
        """Submit workloads, each when its time has come."""
        async with asyncio.TaskGroup() as group:
            for workload in workloads:
                await self.clock.until(workload.at_s)
                async with self._hands:  # begin the next one only when a request is free for it
                    group.create_task(self._submit(workload))

    async def controllers(self) -> None:
        """Delete workloads that have ended, and start others anew, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for name in _taken(self._judge.orphans):
                    group.create_task(self._delete(f"{self._api.pods}/{name}"))
                for name in dict.fromkeys(_taken(self._judge.settled)):
                    known = self._judge.progress.get(name)
                    if known is None or known.withdrawn:
                        continue
                    self._judge.withdraw(name)
                    if not known.has_ended:
                        group.create_task(self._submit(_anew(known.workload, next(self._runs))))
                    group.create_task(self._clean_up(known.workload))

    async def cloud(self, losses: Sequence[Loss]) -> None:
        """Take nodes away and give them back, once their pods are gone."""
        async with asyncio.TaskGroup() as group:
            for loss in losses:
                group.create_task(self._lose(loss))

    async def until(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until a condition on the judge's knowledge holds."""

        async def condition() -> bool:
            return holds()

        await self._api.until(condition, what, timeout_s)

    async def _submit(self, workload: Workload) -> None:
        self._judge.submit(workload)
        made = gang_of(workload)
        await self._all(self._create, made.objects)
        await self._all(self._create, made.pods)

    async def _clean_up(self, workload: Workload) -> None:
        made, deleted = gang_of(workload), self._judge.progress[workload.name].deleted
        names = [name for pod in made.pods if (name := pod["metadata"]["name"]) not in deleted]
        pods = [f"{self._api.pods}/{name}" for name in names]
        await self._all(self._delete, [*pods, *paths(self._api.namespace, made.objects)])
        await self.until(lambda: self._judge.is_gone(workload.name), f"{workload.name} is gone", 60)
        self._judge.forget(workload.name)

    async def _lose(self, loss: Loss) -> None:
        await self.clock.until(loss.at_s)
        fabric = self._judge.fabric
        for number in loss.nodes:
            await floor.lose(self._api, fabric, number)
        await self.clock.until(loss.at_s + loss.away_s)
        names = {fabric.name(number) for number in loss.nodes}

        def empty() -> bool:
            return not any(holding.node in names for holding in self._judge.ledger.now.values())

        await self.until(empty, f"the pods of {sorted(names)} are gone", 60)
        await floor.build(self._api, fabric, loss.nodes)

    async def _all(self, do: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
        """Do something with each item, with at most HANDS requests at a time."""

        async def one(item: T) -> None:
            async with self._hands:
                await do(item)

        if len(items) == 1:
            await one(items[0])
            return
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))

    async def _create(self, manifest: Manifest) -> None:
        await self._api.create(manifest)

    async def _delete(self, path: str) -> None:
        await self._api.delete(path, at_once=True)


def _anew(workload: Workload, number: int) -> Workload:
    """The next run of a workload, under a name of its own."""
    return replace(workload, name=f"{workload.name.partition('-r')[0]}-r{number}")


def _taken(names: list[str]) -> list[str]:
    """All names in the list, which is empty afterwards."""
    taken = list(names)
    names.clear()
    return taken
