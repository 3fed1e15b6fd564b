"""What strangers send to a port is not kept."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import suppress

from aiohttp import web

from gangline.process.listening import Listener

from ..eventually import until

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"a" * 2**20 + b"\r\n\r\n"


async def send(port: int) -> None:
    """A head of a megabyte on a connection of its own, and wait for its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError):
        writer.write(HEAD)
        await writer.drain()
        await reader.read()
    writer.close()


async def test_heads_that_are_too_large_leave_nothing_behind_without_the_garbage_collector() -> None:
    listener = Listener(web.Application(), "127.0.0.1:0", "--listen")
    await listener.start()
    await send(listener.port)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(20):
            await send(listener.port)
        await until(lambda: not listener.open_connections)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
        await listener.stop()

    assert kept < 2 * 2**20
