"""Requests through a proxy: a write is sent once, whatever becomes of the connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gangline import errors
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.resources import LEASES, PODS
from gangline.model import Lease, LeaseSpec, ObjectMeta


@asynccontextmanager
async def proxy_that_breaks(after: int) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that answers so many requests, and closes the connection after each request that comes then: its address,
    and the methods of the requests.
    """
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while came := (await reader.read(65_536)).decode():
            asked.extend(heads := re.findall(r"(\w+) \S+ HTTP/1.1\r\n", came))
            if len(asked) > after:
                break
            for _ in heads:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


@pytest.mark.parametrize("after", [0, 1], ids=["new connection", "kept connection"])
async def test_a_write_is_sent_once_though_the_connection_breaks(after: int) -> None:
    async with proxy_that_breaks(after) as (url, asked):
        access = Access("http://api.test", proxy=url)
        async with HttpClient(Credentials(lambda: access)) as client:
            for _ in range(after):
                await client.delete(PODS, "a", namespace="default")

            with pytest.raises(errors.Unavailable, match="closed the connection"):
                await client.delete(PODS, "a", namespace="default")
            with pytest.raises(errors.Unavailable, match="closed the connection"):
                await client.replace(LEASES, Lease(ObjectMeta(name="l", namespace="default"), LeaseSpec()))

    assert asked == [*["DELETE"] * after, "DELETE", "PUT"]
