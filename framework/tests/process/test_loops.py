"""Two event loops in two threads: what one awaits of the other; and what a loop says of futures that nobody awaits."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading

import pytest

from gangline.process.loops import LoopThread, across, new_event_loop


async def test_work_runs_in_the_other_thread_and_its_answer_comes_back() -> None:
    async def name() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async with LoopThread("beside", new_event_loop) as thread:
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


def left_by(error: Exception) -> None:
    """Play the loop that leaves an error in a future which nobody awaits."""

    async def story() -> None:
        asyncio.get_running_loop().create_future().set_exception(error)
        gc.collect()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story())


def test_a_connection_that_breaks_when_nobody_waits_for_it_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        left_by(ConnectionResetError())

    assert [(each.levelname, each.exc_info) for each in caplog.records if "broke" in each.message] == [("DEBUG", None)]
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("is_refused", [True, False])
def test_what_cannot_be_sent_because_the_connection_is_closed_is_no_error(
    is_refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """uvloop tells so when a connection is closed while TLS answers a record."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0) as server:
            transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
            transport.abort()
            while True:  # the loop closes the connection in one of its next turns
                try:
                    transport.write(b"alert")
                except RuntimeError as error:
                    refused = error
                    break
                await asyncio.sleep(0)
        cause = refused if is_refused else RuntimeError("no")
        loop.call_exception_handler({"message": "Fatal error on SSL", "exception": cause, "transport": transport})

    with caplog.at_level(logging.DEBUG), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story())

    told = [
        (each.levelname, each.exc_info is None)
        for each in caplog.records
        if each.name != "asyncio" or "SSL" in each.message
    ]
    assert told == [("DEBUG", True) if is_refused else ("ERROR", False)]


def test_any_other_error_that_nobody_awaits_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    left_by(ValueError("no"))

    (told,) = [each for each in caplog.records if "never retrieved" in each.message]
    assert told.levelname == "ERROR" and told.exc_info is not None


def test_a_task_that_a_broken_connection_ends_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ConnectionResetError

    async def story() -> None:
        asyncio.get_running_loop().create_task(fail())  # nobody awaits it
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story())

    assert "Task exception was never retrieved" in caplog.text
