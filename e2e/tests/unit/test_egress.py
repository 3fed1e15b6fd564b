"""The way from the API server to Services."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from gangline_e2e import egress
from gangline_e2e.api import Api

READY = [{"type": "Ready", "status": "True"}]


class OneService:
    """An API server with a Service at 10.0.0.1:443 and a ready pod behind it, on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def list(self, path: str, **options: str) -> list[dict[str, Any]]:
        if path.endswith("/services"):
            spec = {"clusterIP": "10.0.0.1", "ports": [{"port": 443, "targetPort": self._port}], "selector": {"a": "b"}}
            return [{"metadata": {"namespace": "default"}, "spec": spec}]
        return [{"status": {"phase": "Running", "podIP": "127.0.0.1", "conditions": READY}, "metadata": {}, "spec": {}}]


async def test_bytes_go_both_ways_and_connections_end_with_the_proxy(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    api = cast(Api, OneService(server.sockets[0].getsockname()[1]))
    async with egress.proxy(api, tmp_path / "socket"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
        writer.write(b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"

    async with asyncio.timeout(10):
        await ended.wait()
        assert await reader.read() == b""
    writer.close()
    server.close()
