"""How connections to an API server are opened, and that none stays open that nobody uses."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from gangline.kube.connections import HttpPool
from gangline.kube.reading import KeptReader, Limits, _ReadingConnection  # pyright: ignore[reportPrivateUsage]

from .certificates import Certificates

PATIENT = Limits(total=20.0)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _Named:
    """A loop for which the name api.example has the addresses 127.0.0.2 and 127.0.0.1."""

    async def getaddrinfo(self, host: Any, port: Any, **kinds: Any) -> Any:
        if host != "api.example":
            return await super().getaddrinfo(host, port, **kinds)  # type: ignore[misc]  # a mixin of loops
        return [each for known in ("127.0.0.2", "127.0.0.1") for each in await self.getaddrinfo(known, port, **kinds)]


def named(base: Any) -> Any:
    """The class of a loop with these names."""
    return type(f"Named{base.__name__}", (_Named, base), {})


@pytest.fixture(params=[named(asyncio.SelectorEventLoop), named(uvloop.Loop)])
def loops(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    made: Callable[[], asyncio.AbstractEventLoop] = request.param
    return made


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(ANSWER)
    writer.close()


async def hanging_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.transport.close()


async def read(reader: KeptReader) -> bytes:
    async with reader.open("/", {}, PATIENT) as answer:
        return b"".join([part async for part in answer.parts()])


async def listening(talk: Talk, host: str, port: int = 0, served: ssl.SSLContext | None = None) -> asyncio.Server:
    return await asyncio.start_server(talk, host, port, ssl=served)


def contexts(certificates: Certificates) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Those of a server and a client."""
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificates.server, certificates.server_key)
    return served, ssl.create_default_context(cafile=str(certificates.ca))


def test_the_error_of_a_server_with_two_addresses_is_that_of_the_last_one(
    loops: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Not one error about many errors, which has no number."""

    async def story() -> None:
        taken = await listening(answering, "127.0.0.1")
        port = taken.sockets[0].getsockname()[1]
        taken.close()
        await taken.wait_closed()
        reader = KeptReader(f"http://api.example:{port}", None, None, connections=1, headers={})
        with pytest.raises(ConnectionRefusedError):
            await read(reader)
        await reader.close()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(story())


def test_an_address_whose_handshake_fails_is_passed_over(
    loops: Callable[[], asyncio.AbstractEventLoop], certificates: Certificates
) -> None:
    async def story() -> bytes:
        served, trusting = contexts(certificates)
        good = await listening(answering, "127.0.0.1", served=served)
        port = good.sockets[0].getsockname()[1]
        bad = await listening(hanging_up, "127.0.0.2", port)
        reader = KeptReader(f"https://api.example:{port}", trusting, "127.0.0.1", connections=1, headers={})
        try:
            return await read(reader)
        finally:
            await reader.close()
            for server in (good, bad):
                server.close()
                await server.wait_closed()

    with asyncio.Runner(loop_factory=loops) as runner:
        assert runner.run(story()) == b"ok"


def test_a_server_that_hangs_up_in_the_handshake_is_told_in_words(
    loops: Callable[[], asyncio.AbstractEventLoop], certificates: Certificates
) -> None:
    async def story() -> None:
        server = await listening(hanging_up, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        _, trusting = contexts(certificates)
        reader = KeptReader(f"https://127.0.0.1:{port}", trusting, None, connections=1, headers={})
        with pytest.raises(ConnectionError, match=r"during the TLS handshake|reset by peer"):
            await asyncio.wait_for(read(reader), 10)
        await reader.close()
        server.close()
        await server.wait_closed()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(story())


class Wire(asyncio.Transport):
    """A transport that goes nowhere."""

    is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


async def test_whoever_is_cancelled_when_the_answer_has_just_come_leaves_no_connection_open() -> None:
    """Nobody would know the connection: it is whole and open, but is not given back."""
    connection, wire = _ReadingConnection(asyncio.get_running_loop()), Wire()
    connection.connection_made(wire)
    asking = asyncio.create_task(connection.ask(b"GET / HTTP/1.1\r\n\r\n", PATIENT, math.inf))
    await asyncio.sleep(0)
    connection.data_received(ANSWER)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert wire.is_aborted


class _GivenUp(_ReadingConnection):
    """A connection whose user gives up as soon as it is open, or as soon as it is made."""

    at_once = False
    user: asyncio.Task[Any] | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        if self.at_once:
            self._give_up()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._give_up()

    def _give_up(self) -> None:
        assert self.user is not None
        self.user.cancel()


@pytest.mark.parametrize(
    ("at_once", "context"),
    [(False, None), (True, None), (True, ssl.create_default_context())],
    ids=["open", "made", "made for TLS"],
)
def test_a_connection_that_is_given_up_while_it_is_opened_does_not_keep_the_client_from_closing(
    loops: Callable[[], asyncio.AbstractEventLoop], at_once: bool, context: ssl.SSLContext | None
) -> None:
    async def story(port: int) -> None:
        pool = HttpPool(f"http://127.0.0.1:{port}", context, None, 1, _GivenUp)
        _GivenUp.at_once = at_once
        _GivenUp.user = connecting = asyncio.create_task(pool.connect())
        await asyncio.wait((connecting,))
        assert connecting.cancelled()
        async with asyncio.timeout(5.0):
            await pool.close()
        assert not pool._open_ones

    with socket.create_server(("127.0.0.1", 0)) as server, asyncio.Runner(loop_factory=loops) as runner:
        runner.run(story(server.getsockname()[1]))
