"""Addresses to listen on, and what a client can hold at most; the paths are tested with the servers that have them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from aiohttp import web

from gangline.errors import ConfigError
from gangline.process.listening import Listener, ListeningLimits, parse_address
from gangline.process.loops import LoopFactory, new_event_loop
from gangline.process.server_tls import ServerTLS

from ..eventually import until


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("0.0.0.0:8080", ("0.0.0.0", 8080)),
        (":9090", ("0.0.0.0", 9090)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parsed: tuple[str, int]) -> None:
    assert parse_address(address, "--listen") == parsed


@pytest.mark.parametrize("address", ["", "8080", "localhost", "host:", ":x", "host:65536", "host:-1", "::1:80"])
def test_a_malformed_address_is_an_error_that_names_the_option_and_shows_the_form(address: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_address(address, "--addr")

    assert str(raised.value) == f"--addr: expected HOST:PORT or :PORT, got {address!r}"


GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


@asynccontextmanager
async def listening(
    limits: ListeningLimits, size: int = 2, context: Callable[[], ssl.SSLContext] | None = None
) -> AsyncIterator[Listener]:
    """A server whose only page has so many bytes."""

    async def page(request: web.Request) -> web.Response:
        await request.read()
        if "fail" in request.query:
            raise RuntimeError("a bug")
        return web.Response(body=b"x" * size)

    app = web.Application()
    app.add_routes([web.get("/", page)])
    listener = Listener(app, "127.0.0.1:0", "--listen", context, limits)
    await listener.start()
    yield listener
    await listener.stop()


async def opened(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.port)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(GET)
    return await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2)


@pytest.mark.parametrize("sent", [b"", b"G", GET[:-2]], ids=["nothing", "a byte", "all but the end"])
async def test_a_connection_that_does_not_end_its_first_head_in_time_is_closed(sent: bytes) -> None:
    async with listening(ListeningLimits(head=0.2)) as listener:
        reader, writer = await opened(listener)
        writer.write(sent)

        assert await is_closed(reader)
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with listening(ListeningLimits(request=0.2)) as listener:
        reader, writer = await opened(listener)
        writer.write(GET[:-2] + b"Content-Length: 9\r\n\r\n1")

        assert await is_closed(reader)
        writer.close()


async def test_who_does_not_take_an_answer_is_cut_off() -> None:
    async with listening(ListeningLimits(request=0.5), size=64 << 20) as listener:
        reader, writer = await opened(listener)
        cast(asyncio.Transport, writer.transport).pause_reading()
        writer.write(GET)
        await until(lambda: listener.open_connections == 1)
        await until(lambda: listener.open_connections == 0)

        writer.close()
        del reader


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with listening(ListeningLimits(idle=0.2)) as listener:
        reader, writer = await opened(listener)
        assert (await answered(reader, writer)).startswith(b"HTTP/1.1 200")

        assert await is_closed(reader)
        writer.close()


async def test_slow_connections_give_way_to_a_good_one() -> None:
    async with listening(ListeningLimits(connections=4, head=0.3)) as listener:
        slow = [await opened(listener) for _ in range(20)]
        good = await opened(listener)

        assert (await answered(*good)).startswith(b"HTTP/1.1 200")
        for _, writer in (*slow, good):
            writer.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "uvloop"])
def test_connections_that_begin_no_handshake_give_way_to_a_good_one(new_loop: LoopFactory) -> None:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    async def story() -> None:
        own = ServerTLS(None)
        async with listening(ListeningLimits(connections=4), context=lambda: own.context) as listener:
            silent = [await opened(listener) for _ in range(20)]
            good = await asyncio.open_connection("127.0.0.1", listener.port, ssl=trusting)

            assert (await answered(*good)).startswith(b"HTTP/1.1 200")
            async with asyncio.timeout(5):
                assert all([await is_closed(reader) for reader, _ in silent[:16]])
            for _, writer in (*silent, good):
                writer.transport.abort()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(story())


async def test_keeping_a_connection_alive_goes_on_past_the_time_for_its_head() -> None:
    async with listening(ListeningLimits(head=0.2)) as listener:
        connection = await opened(listener)
        for _ in range(4):
            assert (await answered(*connection)).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.1)
        connection[1].close()


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"],
    ids=["TLS", "long"],
)
async def test_what_is_no_http_is_refused_without_a_word_in_the_log(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(ListeningLimits()) as listener:
        reader, writer = await opened(listener)
        writer.write(sent)

        assert (await reader.readline()).startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
        writer.close()
    assert caplog.records == []


async def test_a_page_that_fails_is_logged_and_harms_its_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(ListeningLimits()) as listener:
        reader, writer = await opened(listener)
        writer.write(GET.replace(b"/ ", b"/?fail=yes ", 1))

        assert (await reader.readline()).startswith(b"HTTP/1.1 500")
        writer.close()
        other = await opened(listener)
        assert (await answered(*other)).startswith(b"HTTP/1.1 200")
        other[1].close()
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_the_application_is_made_once_for_the_first_connections() -> None:
    made: list[web.Application] = []

    async def page(request: web.Request) -> web.Response:
        return web.Response(body=b"xx")

    def app() -> web.Application:
        made.append(web.Application())
        made[-1].add_routes([web.get("/", page)])
        return made[-1]

    listener = Listener(app, "127.0.0.1:0", "--listen")
    await listener.start()
    assert not made
    both = await asyncio.gather(opened(listener), opened(listener))
    for reader, writer in both:
        assert (await answered(reader, writer)).endswith(b"xx")
        writer.close()
    await listener.stop()

    assert len(made) == 1


async def test_an_application_that_cannot_be_made_closes_connections_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def app() -> web.Application:
        raise RuntimeError("a bug")

    listener = Listener(app, "127.0.0.1:0", "--listen")
    await listener.start()
    for _ in range(3):
        reader, writer = await opened(listener)
        assert await is_closed(reader)
        writer.close()
    await listener.stop()

    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told == "--listen 127.0.0.1:0: nothing can be served: RuntimeError: a bug"
