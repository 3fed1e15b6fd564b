"""Schedulers that have ended, and configurations that were replaced, are let go: whoever reloads a thousand times, or
makes a thousand schedulers in one process, needs no more memory than who does so once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any
from weakref import WeakSet

import msgspec
import pytest

from gangline import config
from gangline.config import SchedulerConfiguration
from gangline.kube.resources import NODES, PODS
from gangline.loop.scheduler import Options, Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run
from gangline_profiles import names, read

TIMERS = 600.0
"""Seconds after which no timer of what was cancelled is left."""
NODE = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}
CATALOG = Catalog.discover()


def pod(name: str, scheduler: str) -> dict[str, Any]:
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


@pytest.fixture(scope="module")
def packaged() -> SchedulerConfiguration:
    """All packaged profiles in one scheduler."""
    by_name = {
        profile.scheduler_name: profile for name in names() for profile in config.load(read(name), name).profiles
    }
    return msgspec.structs.replace(config.load(read("default"), "default"), profiles=list(by_name.values()))


class Story:
    """One scheduler on a cluster in memory."""

    def __init__(self, configuration: SchedulerConfiguration) -> None:
        self.clock = VirtualClock()
        self.server = InMemoryServer(self.clock)
        self.server.create(NODES, NODE)
        self.scheduler = Scheduler(configuration, SimulatedClient(self.server), self.clock, CATALOG, Options(seed=1))

    async def bound(self, name: str, scheduler: str) -> None:
        """A pod comes and is bound."""
        self.server.create(PODS, pod(name, scheduler))
        until = self.clock.monotonic() + 60.0
        while not self.server.get(PODS, name, namespace="default").data["spec"].get("nodeName"):
            assert self.clock.monotonic() < until
            await asyncio.sleep(0.1)

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        async def whole() -> None:
            task = asyncio.create_task(self.scheduler.run())
            try:
                await story
            finally:
                task.cancel()
                await asyncio.wait([task])

        run(whole(), self.clock)


def test_schedulers_that_have_ended_are_let_go(packaged: SchedulerConfiguration) -> None:
    alive: WeakSet[Any] = WeakSet()

    def one() -> None:
        story = Story(packaged)
        alive.update((story.scheduler, story.scheduler.cache, *story.scheduler.runtimes.values()))
        story.play(story.bound("a", packaged.profiles[0].scheduler_name))

    for _ in range(3):
        one()
    gc.collect()

    assert not list(alive)


def test_configurations_that_were_replaced_are_let_go(packaged: SchedulerConfiguration) -> None:
    story = Story(packaged)
    alive: WeakSet[Any] = WeakSet()

    def current() -> set[Any]:
        runtimes = story.scheduler.runtimes.values()
        return {*runtimes, *(runtime.handle for runtime in runtimes)}

    async def reloads() -> None:
        for number in range(4):
            alive.update(current())
            await story.bound(f"p{number}", packaged.profiles[number % len(packaged.profiles)].scheduler_name)
            story.scheduler.use(packaged)
        await asyncio.sleep(TIMERS)
        gc.collect()

        assert not set(alive)

    story.play(reloads())
