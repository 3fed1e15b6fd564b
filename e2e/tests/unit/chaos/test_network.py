"""The gate between a scheduler and the API server, in each of its modes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gangline_chaos import network
from gangline_chaos.network import Gates


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """The port of a server that says again what it hears, in capitals."""
    served: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(writer)
        with suppress(OSError):
            while data := await reader.read(100):
                writer.write(data.upper())
                await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in served:
            writer.transport.abort()


class Client:
    """One connection through a gate."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def says(self, text: str, within_s: float = 5.0) -> str:
        """The answer; "" when the connection ends. Raises TimeoutError."""
        self.writer.write(text.encode())
        return await self.hears(within_s)

    async def hears(self, within_s: float = 5.0) -> str:
        async with asyncio.timeout(within_s):
            try:
                return (await self._reader.read(100)).decode()
            except ConnectionError:
                return ""


Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connected() -> AsyncIterator[Connect]:
    """A function that connects to a gate; its connections are closed after the test."""
    opened: list[Client] = []

    async def connect(gates: Gates, number: int = 0) -> Client:
        opened.append(Client(*await asyncio.open_connection("127.0.0.1", gates.each[number].port)))
        return opened[-1]

    yield connect
    for client in opened:
        client.writer.transport.abort()
        with suppress(OSError):
            await client.writer.wait_closed()


@pytest.fixture
async def gates() -> AsyncIterator[Gates]:
    async with echo() as port, Gates(port, 2) as gates:
        yield gates


async def test_an_open_gate_passes_everything_on(gates: Gates, connected: Connect) -> None:
    client = await connected(gates)

    assert await client.says("a") == "A"
    client.writer.write_eof()
    assert await client.hears() == ""


async def test_a_cut_breaks_connections_and_refuses_new_ones_at_this_gate_alone(
    gates: Gates, connected: Connect
) -> None:
    client, other = await connected(gates), await connected(gates, 1)
    assert [await client.says("a"), await other.says("a")] == ["A", "A"]

    gates.each[0].set("cut")

    assert await client.hears() == ""
    assert await (await connected(gates)).says("b") == ""
    assert await other.says("b") == "B"
    gates.each[0].set("open")
    assert await (await connected(gates)).says("c") == "C"


async def test_a_stall_delivers_late(gates: Gates, connected: Connect) -> None:
    client = await connected(gates)
    assert await client.says("a") == "A"
    gates.each[0].set("stalled")
    with pytest.raises(TimeoutError):
        await client.says("b", 0.1)

    gates.each[0].set("open")

    assert await client.hears() == "B"


async def test_a_network_that_is_gone_delivers_nothing_and_breaks_in_the_end(gates: Gates, connected: Connect) -> None:
    client = await connected(gates)
    assert await client.says("a") == "A"
    gates.each[0].set("dropping")
    with pytest.raises(TimeoutError):
        await client.says("b", 0.1)

    gates.each[0].set("open")

    assert await client.hears() == ""


async def test_a_slow_gate_takes_its_time_for_each_piece(gates: Gates, connected: Connect) -> None:
    client = await connected(gates)
    gates.each[0].set("slow")
    loop = asyncio.get_running_loop()

    start = loop.time()
    answer = await client.says("a")

    assert answer == "A" and loop.time() - start >= 2 * network.SLOW_S


async def test_a_gate_without_a_server_behind_it_ends_connections(connected: Connect) -> None:
    async with echo() as port:
        pass
    async with Gates(port, 1) as gates:
        assert await (await connected(gates)).says("a") == ""
