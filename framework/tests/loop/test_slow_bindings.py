"""A plugin that waits for long, or for ever, before or after a binding keeps no other pod waiting."""

from __future__ import annotations

import asyncio

import pytest

from gangline import PodInfo, hookimpl
from gangline.loop.workers import LONG, MOST_LONG
from gangline.simulate import VirtualClock, run
from gangline.simulate.time import virtual_loop
from gangline_plugins.default_binder import DefaultBinder

from .test_binding import Bench, running, slow


class Patient:
    """Waits before the binding of some pods until they are released, and for the pod `never` for ever."""

    name = "Patient"

    def __init__(self) -> None:
        self.released = asyncio.Event()

    @hookimpl
    async def pre_bind(self, pod: PodInfo) -> None:
        if pod.name.startswith("slow"):
            await self.released.wait()
        if pod.name == "never":
            await asyncio.Event().wait()


def test_bindings_that_take_long_keep_no_others_waiting() -> None:
    async def story() -> None:
        bench = Bench(Patient, DefaultBinder, concurrency=2)
        async with running(bench):
            for name in ("slow-0", "never", "slow-1", "slow-2", "quick-0", "quick-1"):
                bench.submit(name)
            await asyncio.sleep(2 * LONG + 0.1)
            assert set(bench.told) == {"quick-0", "quick-1"}
            assert (bench.binder.pending, bench.binder.slow) == (0, 4)

            bench.runtime.profile.plugins["Patient"].released.set()
            await asyncio.sleep(0.1)
            assert len(bench.told) == 5 and (bench.binder.pending, bench.binder.slow) == (0, 1)

    run(story(), VirtualClock())


def test_only_so_many_bindings_give_their_places_away() -> None:
    async def story() -> None:
        bench = Bench(Patient, DefaultBinder, concurrency=1)
        async with running(bench):
            for i in range(MOST_LONG + 1):
                bench.submit(f"slow-{i}")
            bench.submit("quick")
            await asyncio.sleep((MOST_LONG + 2) * LONG)
            assert not bench.told and bench.binder.slow == MOST_LONG

            bench.runtime.profile.plugins["Patient"].released.set()
            await asyncio.sleep(0.1)
            assert len(bench.told) == MOST_LONG + 2 and (bench.binder.pending, bench.binder.slow) == (0, 0)

    run(story(), VirtualClock())


def test_a_binding_that_kept_its_place_gives_it_away_when_others_without_places_have_ended() -> None:
    async def story() -> None:
        bench = Bench(Patient, DefaultBinder, concurrency=1)
        async with running(bench):
            for i in range(MOST_LONG):
                bench.submit(f"slow-{i}")
            bench.submit("never")
            bench.submit("quick")
            await asyncio.sleep((MOST_LONG + 2) * LONG)
            assert not bench.told and bench.binder.slow == MOST_LONG

            bench.runtime.profile.plugins["Patient"].released.set()
            await asyncio.sleep(0.1)
            assert "quick" in bench.told and (bench.binder.pending, bench.binder.slow) == (0, 1)

    run(story(), VirtualClock())


class Talkative:
    """Goes on for ever after the binding of a pod that is not quick."""

    name = "Talkative"

    @hookimpl
    async def post_bind(self, pod: PodInfo) -> None:
        if pod.name != "quick":
            await asyncio.Event().wait()


class Counts:
    """Is told of bound pods after `Talkative`."""

    name = "Counts"

    def __init__(self) -> None:
        self.told: list[str] = []

    @hookimpl
    async def post_bind(self, pod: PodInfo) -> None:
        self.told.append(pod.name)


def test_plugins_that_never_return_after_the_binding_keep_no_pod_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        bench = Bench(DefaultBinder, Talkative, Counts, concurrency=2)
        async with running(bench):
            for i in range(2 * MOST_LONG + 6):
                bench.submit(f"p{i}")
            bench.submit("quick")
            await asyncio.sleep((MOST_LONG + 6) * LONG)
            assert len(bench.told) == 2 * MOST_LONG + 7
            assert sorted(bench.runtime.profile.plugins["Counts"].told) == [f"p{i}" for i in range(6)] + ["quick"]
            assert (bench.binder.pending, bench.binder.slow) == (0, 2 * MOST_LONG)

    run(story(), VirtualClock())

    assert "plugin Talkative at post_bind: TimeoutError: did not end, and too many others wait" in caplog.text


def test_a_binder_that_is_cancelled_ends_although_plugins_never_return_after_the_binding() -> None:
    async def story() -> None:
        bench = Bench(DefaultBinder, Talkative, concurrency=1)
        async with running(bench):
            for i in range(MOST_LONG + 2):
                bench.submit(f"p{i}")
            await asyncio.sleep((MOST_LONG + 4) * LONG)

    run(story(), VirtualClock())


def test_after_long_bindings_no_more_than_so_many_are_bound_at_a_time() -> None:
    plugin, gates, busy = slow()

    async def story() -> None:
        bench = Bench(plugin, concurrency=2)
        async with running(bench):
            for i in range(2):
                bench.submit(f"long-{i}")
            await asyncio.sleep(LONG + 0.1)
            for gate in gates:
                gate.set()
            for i in range(6):
                bench.submit(f"p{i}")
            await asyncio.sleep(0.1)

    run(story(), VirtualClock())

    assert len(gates) == 4 and max(busy) == 2


def test_finishing_waits_for_a_binding_that_takes_long() -> None:
    async def story() -> None:
        bench = Bench(Patient, DefaultBinder, concurrency=1)
        async with running(bench):
            bench.submit("slow")
            await asyncio.sleep(LONG + 0.1)
            finishing = asyncio.create_task(bench.binder.finish())
            await asyncio.sleep(0.1)
            assert not finishing.done()
            bench.runtime.profile.plugins["Patient"].released.set()
            await asyncio.sleep(0.1)
            assert finishing.done() and bench.told["slow"].is_success

    run(story(), VirtualClock())


def test_only_work_that_waits_sets_a_timer() -> None:
    async def story() -> int:
        bench = Bench(Patient, DefaultBinder)
        async with running(bench):
            await asyncio.sleep(0)
            bench.submit(name)
            for _ in range(20):
                await asyncio.sleep(0)
            return next(virtual_loop()._order)  # timers that were set so far

    timers = {}
    for name in ("quick", "never"):
        timers[name] = run(story(), VirtualClock())

    assert timers == {"quick": 0, "never": 1}
