"""Connections to a listener: how many, and which one goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from aiohttp import web

from gangline.process.handling import MOST_AHEAD
from gangline.process.listening import Listener, ListeningLimits

from ..eventually import until

MOST = 3
ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
Open = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[..., Awaitable[Open]]


class Slow:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.app = web.Application()
        self.app.add_routes([web.get("/", self._answer), web.get("/slow", self._wait)])
        self.waiting = asyncio.Semaphore(0)
        self.now = 0
        """Requests that are being answered."""

    async def _answer(self, request: web.Request) -> web.Response:
        return web.Response(text="here")

    async def _wait(self, request: web.Request) -> web.Response:
        self.waiting.release()
        self.now += 1
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        return web.Response(text="late")


@pytest.fixture
async def slow() -> Slow:
    return Slow()


@pytest.fixture
async def listener(slow: Slow) -> AsyncIterator[Listener]:
    made = Listener(slow.app, "127.0.0.1:0", "--listen", limits=ListeningLimits(connections=MOST))
    await made.start()
    yield made
    slow.go.set()
    await made.stop()


@pytest.fixture
async def opened(listener: Listener) -> AsyncIterator[Dial]:
    """Opens a connection and asks; all are closed at the end."""
    writers: list[asyncio.StreamWriter] = []

    async def dial(text: bytes = ASKED) -> Open:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writers.append(writer)
        writer.write(text)
        return reader, writer

    yield dial
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def answered(reader: asyncio.StreamReader) -> bytes:
    """The first line and the body of an answer; empty if the connection was closed instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        return head.splitlines()[0] + b" " + await reader.readexactly(4)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def test_where_there_are_too_many_the_one_goes_that_was_idle_longest(opened: Dial) -> None:
    first, second, third = [await opened() for _ in range(MOST)]
    for reader, writer in (second, third, first):
        assert await answered(reader) == b"HTTP/1.1 200 OK here"
        writer.write(ASKED)
        assert await answered(reader) == b"HTTP/1.1 200 OK here"

    fourth = await opened()

    assert await answered(fourth[0]) == b"HTTP/1.1 200 OK here"
    assert await answered(second[0]) == b""
    for reader, writer in (first, third):
        writer.write(ASKED)
        assert await answered(reader) == b"HTTP/1.1 200 OK here"


async def test_a_request_that_is_being_answered_goes_after_all_idle_ones(opened: Dial, slow: Slow) -> None:
    busy = await opened(ASKED.replace(b"/ ", b"/slow "))
    await slow.waiting.acquire()
    for _ in range(2 * MOST):
        assert await answered((await opened())[0]) == b"HTTP/1.1 200 OK here"

    slow.go.set()

    assert await answered(busy[0]) == b"HTTP/1.1 200 OK late"


async def test_if_all_are_busy_the_oldest_request_goes(opened: Dial, slow: Slow) -> None:
    busy = []
    for _ in range(MOST):
        busy.append(await opened(ASKED.replace(b"/ ", b"/slow ")))
        await slow.waiting.acquire()

    fourth = await opened()

    assert await answered(fourth[0]) == b"HTTP/1.1 200 OK here"
    assert await answered(busy[0][0]) == b""
    slow.go.set()
    assert await answered(busy[1][0]) == b"HTTP/1.1 200 OK late"


async def test_connections_that_say_nothing_do_not_keep_others_out(opened: Dial) -> None:
    for _ in range(10 * MOST):
        await opened(b"GET / HT")

    assert await answered((await opened())[0]) == b"HTTP/1.1 200 OK here"


@pytest.mark.parametrize("how", ["closes", "resets", "has sent more"])
async def test_the_work_for_a_client_that_has_gone_ends(opened: Dial, slow: Slow, how: str) -> None:
    _, writer = await opened(ASKED.replace(b"/ ", b"/slow ") + ASKED * MOST_AHEAD * (how == "has sent more"))
    await slow.waiting.acquire()
    if how == "resets":
        writer.transport.abort()
    else:
        writer.close()

    await until(lambda: slow.now == 0)


async def test_who_sends_requests_far_ahead_is_cut_off(opened: Dial, slow: Slow) -> None:
    reader, _ = await opened(ASKED.replace(b"/ ", b"/slow ") + ASKED * 50_000)

    assert await answered(reader) == b""
    await until(lambda: slow.now == 0)
