"""Two event loops in two threads: what one awaits of the other."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from gangline.process.loops import LoopThread, across


async def test_work_runs_in_the_other_thread_and_its_answer_comes_back() -> None:
    async def name() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async with LoopThread("beside", uvloop.new_event_loop) as thread:
        assert await thread.call(name) == "beside"


async def test_what_it_raises_comes_back_too() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async with LoopThread("beside") as thread:
        with pytest.raises(ValueError, match="no"):
            await thread.call(fail)


async def test_a_cancellation_waits_until_the_work_has_ended_there() -> None:
    told: list[str] = []
    begun = asyncio.Event()
    here = asyncio.get_running_loop()

    async def work() -> None:
        here.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            told.append("ended")

    async with LoopThread("beside") as thread:
        call = asyncio.create_task(thread.call(work))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert told == ["ended"]


async def test_work_goes_there_and_back() -> None:
    here = asyncio.get_running_loop()

    async def home() -> str:
        return threading.current_thread().name

    async with LoopThread("beside") as thread:
        assert await thread.call(lambda: across(here, home)) == threading.current_thread().name


async def test_the_thread_goes_on_while_this_loop_is_held() -> None:
    turns, enough = [0], threading.Event()

    async def turn() -> None:
        while True:
            turns[0] += 1
            if turns[0] == 20:
                enough.set()
            await asyncio.sleep(0.001)

    async with LoopThread("beside") as thread:
        call = asyncio.create_task(thread.call(turn))
        await asyncio.sleep(0)
        assert enough.wait(10)  # holds this loop
        call.cancel()
        await asyncio.wait([call])


async def test_a_loop_that_ends_by_itself_fails_who_waits_for_it() -> None:
    async def leave() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    async with LoopThread("beside") as thread:
        with pytest.raises(RuntimeError, match="has ended"):
            await thread.call(leave)
