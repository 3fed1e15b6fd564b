"""Serves an application on one address, and limits the number and the duration of connections.

There is always room for one more connection, also before its TLS handshake is done: if too many connections are being
opened, the one is closed that has been opened longest. So a client that opens many and says nothing loses its own.

The application and aiohttp are loaded for the first connection: many processes have none for a long time, and loading
takes a tenth of a second and some 10 MB.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gangline.errors import ConfigError
from gangline.failures import described
from gangline.process.open_connections import OpenConnections

if TYPE_CHECKING:
    from aiohttp import web

    from gangline.process.handling import Handling

log = logging.getLogger(__name__)

DRAIN = 5.0
"""Seconds that requests have to finish when a listener stops."""
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

    ``app`` is called for the first connection; an Application returns itself. ``option`` is the command-line option of
    the address, for messages. ``context`` is called for each connection, so that the TLS context may change. Raises
    ConfigError for an invalid address.
    """

    def __init__(
        self,
        app: Callable[[], web.Application],
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
        self._app = app
        self._handling: Handling | None = None
        self._loading = asyncio.Lock()
        self._has_complained = False
        self._connections = OpenConnections(limits.connections, limits.head)
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: dict[asyncio.Task[None], None] = {}
        """The connections without a TLS handshake yet; the first one has been without it longest."""
        self.listening = False

    async def start(self) -> None:
        """Begin to listen. Raises ConfigError if the address cannot be used."""
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
        if self._handling is not None:
            await self._handling.stop()
        self._connections.stop()

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
            if len(self._opening) >= self._limits.connections:
                oldest = next(iter(self._opening))
                del self._opening[oldest]
                oldest.cancel()
            opening = self._spawn(self._open(connection))
            self._opening[opening] = None
            opening.add_done_callback(partial(self._is_opened, connection))

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def _is_opened(self, connection: socket.socket, opening: asyncio.Task[None]) -> None:
        """The connection has been handed over, or had to go: perhaps before anything was done for it."""
        self._opening.pop(opening, None)
        if opening.cancelled():
            connection.close()

    async def _open(self, connection: socket.socket) -> None:
        """Hand the connection over to the event loop, which closes the connection even if this fails."""
        loop = asyncio.get_running_loop()
        try:
            try:
                handling = self._handling or await self._load()
                context = self._context() if self._context is not None else None
            except BaseException:
                connection.close()
                raise
            await loop.connect_accepted_socket(
                handling.protocol,
                connection,
                ssl=context,
                ssl_handshake_timeout=self._limits.handshake if context is not None else None,
            )
        except Exception as error:  # no bytes of a client may harm other connections
            log.debug("%s %s: %s", self._option, self._address, error)

    async def _load(self) -> Handling:
        """The handling of requests, which begins now. Raises, and logs once, the error of a fault in the program."""
        async with self._loading:
            if self._handling is None:
                try:
                    from gangline.process.handling import Handling

                    made = Handling(
                        self._app(),
                        self._connections,
                        request=self._limits.request,
                        idle=self._limits.idle,
                        drain=DRAIN,
                        name=f"{self._option} {self._address}",
                    )
                    await made.start()
                except Exception as error:
                    self._complain(error)
                    raise
                self._handling = made
            return self._handling

    def _complain(self, error: Exception) -> None:
        """Log the error only once, because each new connection tries again."""
        if not self._has_complained:
            self._has_complained = True
            log.error("%s %s: nothing can be served: %s", self._option, self._address, described(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
