"""Handles the requests of a listener's connections, by aiohttp, which is loaded for the first connection.

aiohttp limits neither the number nor the duration of connections: it serves a client for ever, even if the client sends
a byte now and then, or never reads. A handler is cancelled when the connection of its request is closed: nobody works
for a client that has gone.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import BaseTransport, Transport
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import web

from gangline.process.open_connections import OpenConnections

log = logging.getLogger(__name__)

_QUIET = logging.getLogger(f"{__name__}.requests")
_QUIET.disabled = True
"""aiohttp logs a traceback for each request that is not HTTP, so that any client of the port could fill the disk."""
MOST_AHEAD = 8
"""Requests that a client may send on a connection before it has the answer to the first one."""


class Handling:
    """Handles requests from `start` until `stop`.

    ``request`` and ``idle`` are limits of `ListeningLimits`, ``drain`` the seconds that requests have to finish, and
    ``name`` names the listener in the log.
    """

    def __init__(
        self,
        app: web.Application,
        connections: OpenConnections,
        *,
        request: float,
        idle: float,
        drain: float,
        name: str,
    ) -> None:
        self._connections = connections
        self._request, self._idle, self._name = request, idle, name
        app.middlewares.insert(0, self._bounded)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=drain, handler_cancellation=True)

    async def start(self) -> None:
        """To be called before the first connection."""
        await self._runner.setup()

    async def stop(self) -> None:
        """End the open connections when their requests are answered."""
        await self._runner.cleanup()

    def protocol(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        connections = self._connections
        loop = asyncio.get_running_loop()
        return _Handler(self._runner.server, loop, self._idle, connections.made, connections.lost)

    @web.middleware
    async def _bounded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        transport = request.transport
        if transport is not None:
            self._connections.asks(transport)
        limit = asyncio.timeout(self._request)
        try:
            async with limit:
                response = await handler(request)
                await response.prepare(request)
                await response.write_eof()
                return response
        except web.HTTPException:
            raise
        except TimeoutError:
            if limit.expired() and transport is not None:
                transport.abort()
            raise
        except ConnectionError:  # it is gone
            raise
        except Exception:  # one request harms itself alone
            log.exception("%s: %s failed", self._name, request.path)
            return web.Response(status=500, text="internal error\n")
        finally:
            if transport is not None:
                self._connections.answered(transport)


class _Handler(web.RequestHandler):
    """aiohttp's handler of one connection, which also tells the listener when the connection begins and ends."""

    __slots__ = ("_lost", "_made", "_mine")

    def __init__(
        self,
        server: web.Server | None,
        loop: asyncio.AbstractEventLoop,
        idle: float,
        made: Callable[[Transport], None],
        lost: Callable[[BaseTransport], object],
    ) -> None:
        assert server is not None, "the listener has been started"
        super().__init__(
            server,
            loop=loop,
            logger=_QUIET,
            access_log=None,  # type: ignore[arg-type]  # there is none, as in AppRunner
            keepalive_timeout=idle,
            lingering_time=1.0,
            auto_decompress=False,  # a small body could become as large as it likes
        )
        self._made, self._lost = made, lost
        self._mine: Transport | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """The connection is open, and its TLS handshake is done."""
        super().connection_made(transport)
        self._mine = cast(Transport, transport)
        self._made(self._mine)

    def data_received(self, data: bytes) -> None:
        """Cuts off who sends requests far ahead: behind them nobody would see that the client has gone."""
        super().data_received(data)
        if len(self._messages) > MOST_AHEAD + 1 and self._mine is not None:  # the first one may be among them
            self._mine.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The request cannot be answered; its bytes are not kept in memory."""
        try:
            return super().handle_error(request, status, exc, message)
        finally:
            _let_go(exc)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is closed, by the server or by the client."""
        for left, _ in self._messages:
            _let_go(getattr(left, "exc", None))
        super().connection_lost(exc)
        if self._mine is not None:
            self._lost(self._mine)


def _let_go(error: BaseException | None) -> None:
    """Drop the traceback of an error: its frames hold the bytes that a client has sent, in a reference cycle that only
    the garbage collector would free.

    The collector counts objects, not bytes: a hundred objects with a megabyte each do not start it.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
