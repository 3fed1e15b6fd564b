"""An HTTPS server in front of the API server that answers some requests itself: 409, 429, 5xx, or not at all.

The server speaks with the certificate of the API server, and passes requests on with that of the administrator. Some
writes are carried out, and only their answers are lost: so nobody who asked knows what has happened.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from gangline_chaos.network import CHUNK, CONNECT_S

REASONS = {
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "content-encoding"})


@dataclass(frozen=True, slots=True)
class Storm:
    """How requests are answered during a storm."""

    reads: tuple[int, ...]
    """The statuses with which reading requests are answered; without any, reads are passed on."""
    writes: tuple[int, ...]
    share_passed: float
    share_lost: float = 0.0
    """The share of requests that get no answer, whether or not they are carried out."""


MIXED = Storm((429, 500, 503), (409, 429, 500, 503, 504), 0.5, 0.15)
CONFLICTS = Storm((), (409,), 0.3)
THROTTLING = Storm((429,), (429,), 0.3)
ERRORS = Storm((500, 503), (500, 503, 504), 0.3)


class RoughServer:
    """Decides about each request by `rng`."""

    def __init__(self, url: str, client: ssl.SSLContext, rng: random.Random) -> None:
        self._url = url
        self._client = client
        self._rng = rng
        self.port = 0
        self.refused = 0
        """Requests that were answered here, or not at all."""
        self.storm = MIXED
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def running(self, server: ssl.SSLContext) -> AsyncIterator[None]:
        """Serve until the block ends."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        connector = aiohttp.TCPConnector(ssl=self._client, limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False) as self._session:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
                self.port = runner.addresses[0][1]
                yield
            finally:
                await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        roll, storm, is_read = self._rng.random(), self.storm, request.method == "GET"
        answers = storm.reads if is_read else storm.writes
        if roll < storm.share_passed or not answers:
            return await self._pass_on(request, False)
        self.refused += 1
        if roll < storm.share_passed + storm.share_lost:
            if not is_read and self._rng.random() < 0.5:
                return await self._pass_on(request, True)
            return self._silence(request)
        return refusal(self._rng.choice(answers))

    async def _pass_on(self, request: web.Request, loses_answer: bool) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        try:
            async with self._session.request(
                request.method, self._url + request.raw_path, headers=headers, data=await request.read() or None
            ) as answer:
                if loses_answer:
                    await answer.read()
                    return self._silence(request)
                passed = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
                response = web.StreamResponse(status=answer.status, headers=passed)
                if "Content-Encoding" in answer.headers:
                    response.headers["Content-Encoding"] = answer.headers["Content-Encoding"]
                await response.prepare(request)
                async for chunk in answer.content.iter_chunked(CHUNK):
                    await response.write(chunk)
                return response
        except (aiohttp.ClientError, OSError):
            return self._silence(request)

    def _silence(self, request: web.Request) -> web.StreamResponse:
        """Break the connection without an answer."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)


def refusal(status: int) -> web.Response:
    """The answer of an API server that refuses a request."""
    headers = {"Retry-After": "1"} if status == 429 else {}
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": REASONS[status],
        "message": "refused by the test",
        "code": status,
    }
    return web.json_response(body, status=status, headers=headers)
