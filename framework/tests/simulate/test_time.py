"""Virtual time."""

from __future__ import annotations

import asyncio
import math

import pytest

from gangline.simulate import EPOCH, Deadlock, VirtualClock, run
from gangline.simulate.time import virtual_loop

from .stories import in_virtual_time


@in_virtual_time
async def test_an_hour_passes_when_everybody_sleeps_for_an_hour(clock: VirtualClock) -> None:
    for _ in range(3600):
        await asyncio.sleep(1)

    assert clock.monotonic() == 3600
    assert clock.now() == EPOCH + 3600


@in_virtual_time
async def test_timers_fire_by_time_and_then_in_the_order_in_which_they_were_set(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    fired: list[tuple[str, float]] = []

    def fire(name: str) -> None:
        fired.append((name, loop.time()))

    for name, when in (("late", 2.0), ("first", 1.0), ("second", 1.0), ("third", 1.0), ("early", 0.5)):
        loop.call_at(when, fire, name)
    await asyncio.sleep(3)

    assert fired == [("early", 0.5), ("first", 1.0), ("second", 1.0), ("third", 1.0), ("late", 2.0)]


@in_virtual_time
async def test_time_stands_still_while_something_can_run(clock: VirtualClock) -> None:
    sleeper = asyncio.create_task(asyncio.sleep(1))

    for _ in range(1000):
        await asyncio.sleep(0)

    assert clock.monotonic() == 0
    await sleeper
    assert clock.monotonic() == 1


@in_virtual_time
async def test_a_timeout_counts_virtual_seconds(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(90):
            await asyncio.Event().wait()

    assert clock.monotonic() == 90


@in_virtual_time
async def test_a_cancelled_timer_does_not_move_time(clock: VirtualClock) -> None:
    async with asyncio.timeout(100):
        await asyncio.sleep(1)
    await asyncio.sleep(1)

    assert clock.monotonic() == 2


@in_virtual_time
async def test_a_timer_that_is_cancelled_by_another_one_of_the_same_moment_does_not_fire(clock: VirtualClock) -> None:
    loop, fired = asyncio.get_running_loop(), list[str]()
    timers: list[asyncio.TimerHandle] = []
    loop.call_at(1.0, lambda: timers[0].cancel())
    timers.append(loop.call_at(1.0, fired.append, "second"))
    loop.call_at(1.0, fired.append, "third")

    await asyncio.sleep(2)

    assert fired == ["third"]


def test_waiting_for_nothing_is_an_error_that_names_the_tasks() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        await asyncio.create_task(wait(), name="watcher")

    with pytest.raises(Deadlock, match=r"no timer is set, and these tasks wait: .*watcher \(.*wait\)"):
        run(story())


def test_tasks_left_behind_are_cancelled() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("background")

    async def story() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()

    run(story())

    assert ended == ["background"]


@in_virtual_time
async def test_other_threads_functions_run_at_once_in_this_one(clock: VirtualClock) -> None:
    assert await asyncio.to_thread(lambda: clock.monotonic()) == 0

    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 // 0)


@in_virtual_time
async def test_there_is_no_io(clock: VirtualClock) -> None:
    with pytest.raises(RuntimeError, match="no I/O in virtual time"):
        await asyncio.open_connection("127.0.0.1", 9)


def test_a_sleep_for_ever_does_not_take_time_to_its_end() -> None:
    clock = VirtualClock()

    async def story() -> None:
        await asyncio.sleep(1)
        await asyncio.sleep(math.inf)

    with pytest.raises(Deadlock):
        run(story(), clock)

    assert clock.monotonic() == 1


@in_virtual_time
async def test_the_loop_knows_the_tasks_that_are_not_done_in_their_order_and_forgets_the_others(
    clock: VirtualClock,
) -> None:
    loop = virtual_loop()
    kept = [asyncio.create_task(asyncio.sleep(9), name=f"kept-{number}") for number in range(3)]
    for _ in range(1000):
        await asyncio.create_task(asyncio.sleep(0))

    assert [task.get_name() for task in loop.tasks() if task in kept] == ["kept-0", "kept-1", "kept-2"]
    assert len(loop._tasks) <= 128
