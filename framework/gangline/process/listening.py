"""Serves an application on one address, and limits the number and the duration of connections.

aiohttp limits neither: it serves a client for ever, even if the client sends a byte now and then, or never reads.

There is always room for one more connection: if there are too many, the listener closes the connection that has been
without a request longest or, if all have a request, the one with the oldest request. So a client that opens many
connections loses its own.

A handler is cancelled when the connection of its request is closed: nobody works for a client that has gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from asyncio import BaseTransport, TimerHandle, Transport
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from aiohttp import web

from gangline.errors import ConfigError

log = logging.getLogger(__name__)

_QUIET = logging.getLogger(f"{__name__}.requests")
_QUIET.disabled = True
"""aiohttp logs a traceback for each request that is not HTTP, so that any client of the port could fill the disk."""
DRAIN = 5.0
"""Seconds that requests have to finish when a listener stops."""
MOST_AHEAD = 8
"""Requests that a client may send on a connection before it has the answer to the first one."""
BREATH = 0.1
"""Seconds until the next try after a connection could not be accepted."""


@dataclass(frozen=True, slots=True)
class ListeningLimits:
    """Limits of one listener; times in seconds."""

    connections: int = 256
    handshake: float = 10.0
    """For the TLS handshake."""
    head: float = 10.0
    """From the start of a connection to the end of its first request's head."""
    request: float = 30.0
    """From the end of a request's head until the client has read the answer, the body included."""
    idle: float = 75.0
    """Between two requests, the head of the second included."""


def parse_address(address: str, option: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``[::]:PORT`` or ``:PORT`` (every address). Raises ConfigError."""
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (":" in bare and bare == host):
        raise ConfigError("", option, f"expected HOST:PORT or :PORT, got {address!r}")
    return bare or "0.0.0.0", int(port)


class Listener:
    """One application on one address; ``port`` is the real one after `start`, also for port 0.

    ``option`` is the command-line option of the address, for messages. ``context`` is called for each connection, so
    that the TLS context may change. Raises ConfigError for an invalid address.
    """

    def __init__(
        self,
        app: web.Application,
        address: str,
        option: str,
        context: Callable[[], ssl.SSLContext] | None = None,
        limits: ListeningLimits = ListeningLimits(),  # a shared default is safe: it is frozen
    ) -> None:
        self._address = address
        self._option = option
        self._host, self.port = parse_address(address, option)
        self._context = context
        self._limits = limits
        app.middlewares.insert(0, self._bounded)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=DRAIN, handler_cancellation=True)
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = 0
        self._silent: dict[BaseTransport, TimerHandle | None] = {}
        """Connections without a request, each with its timer; first the connection that has waited longest for one."""
        self._busy: dict[BaseTransport, None] = {}
        """Connections with a request, the oldest request first."""
        self.listening = False

    async def start(self) -> None:
        """Begin to listen. Raises ConfigError if the address cannot be used."""
        await self._runner.setup()
        try:
            await self._bind()
        except OSError as error:
            await self.stop()
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConfigError("", self._option, f"cannot listen on {self._address}: {reason}") from error
        self.port = self._sockets[0].getsockname()[1]
        for listening in self._sockets:
            self._spawn(self._accept(listening))
        self.listening = True

    async def stop(self) -> None:
        """Takes no new connections, and ends the open ones when their requests are answered."""
        self.listening = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listening in self._sockets:
            listening.close()
        await self._runner.cleanup()
        for timer in self._silent.values():
            if timer is not None:
                timer.cancel()

    async def _bind(self) -> None:
        """Bind a socket for each address of the host."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            listening = socket.socket(family, socket.SOCK_STREAM)
            self._sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(128)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:  # too many open files, or the other end has gone
                log.warning("%s %s: a connection could not be accepted: %s", self._option, self._address, error)
                await asyncio.sleep(BREATH)
                continue
            if self._opening >= self._limits.connections:
                connection.close()
                continue
            self._opening += 1
            self._spawn(self._open(connection))

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return len(self._silent) + len(self._busy)

    def _make_room(self) -> None:
        if self.open_connections >= self._limits.connections:
            oldest = cast(Transport, next(iter(self._silent or self._busy)))
            self._forget(oldest)
            oldest.abort()

    async def _open(self, connection: socket.socket) -> None:
        """Hand the connection over to the event loop, which closes the connection even if this fails."""
        loop = asyncio.get_running_loop()
        handler = _Handler(self._runner.server, loop, self._limits.idle, self._made, self._forget)
        try:
            context = self._context() if self._context is not None else None
            await loop.connect_accepted_socket(
                lambda: handler,
                connection,
                ssl=context,
                ssl_handshake_timeout=self._limits.handshake if context is not None else None,
            )
        except Exception as error:  # no bytes of a client may harm other connections
            log.debug("%s %s: %s", self._option, self._address, error)
        finally:
            self._opening -= 1

    def _made(self, transport: Transport) -> None:
        self._make_room()
        loop = asyncio.get_running_loop()
        self._silent[transport] = loop.call_later(self._limits.head, transport.abort)

    def _forget(self, transport: BaseTransport) -> bool:
        """Drop a connection from both lists, because it is closed or has a request now; returns whether it was open."""
        is_open = transport in self._silent or transport in self._busy
        self._busy.pop(transport, None)
        if timer := self._silent.pop(transport, None):
            timer.cancel()
        return is_open

    @web.middleware
    async def _bounded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        transport = request.transport
        if transport is not None and self._forget(transport):
            self._busy[transport] = None
        limit = asyncio.timeout(self._limits.request)
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
            log.exception("%s %s: %s failed", self._option, self._address, request.path)
            return web.Response(status=500, text="internal error\n")
        finally:
            if transport is not None and self._forget(transport):
                self._silent[transport] = None  # until its next request, for which aiohttp has the time

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


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
