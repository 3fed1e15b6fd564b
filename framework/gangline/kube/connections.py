"""Connections to an API server that stay open: HTTP by httptools, one caller at a time.

A connection that has failed, timed out or was given up in the middle of an answer is closed and never used again. Bytes
that bring neither the end of a head nor a part of a body are limited, however the server sends them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

import httptools

from gangline.kube import sockets

CONNECT_TIMEOUT = 10.0
"""Seconds, for each address of a server."""
LARGEST_HEAD = 64 * 1024
"""Bytes of a head that are kept until it has to be whole; the same for trailers."""
_NUMBERS = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


class HttpConnection(asyncio.Protocol):
    """One connection; one caller at a time uses it. A subclass keeps the answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_open = False
        self.lost = asyncio.Event()
        self.open_ones: set[HttpConnection] = set()
        """The pool's set of open connections, of which this one is a member while it is open."""
        self._is_abandoned = False
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._unused = 0
        """Bytes since the last head or part of a body."""

    def fail(self, error: Exception) -> None:
        """The answer does not come; called when nothing waits, too."""
        raise NotImplementedError

    @property
    def is_asked(self) -> bool:
        """Whether a request is under way."""
        raise NotImplementedError

    def send(self, data: bytes) -> None:
        """Send a whole request. Raises ConnectionResetError if the connection is closed, or is about to be."""
        if self._transport is None or not self.is_open or self._transport.is_closing():
            raise ConnectionResetError("the server closed the connection")
        self._unused = 0
        self._transport.write(data)

    def close(self) -> None:
        """Close it for good."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Close it although it may not be open yet: who opens it has given up. uvloop does not say then that it is
        lost, and may even say afterwards that it is open.
        """
        self._is_abandoned = True
        self.close()
        self.open_ones.discard(self)
        self.lost.set()

    # From the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_abandoned:
            self._transport.abort()
            return
        sockets.bound(transport)
        self.is_open = True
        self.open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by this side or by the server."""
        self.is_open = False
        self.open_ones.discard(self)
        self.lost.set()
        self.fail(exc if isinstance(exc, OSError) else ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        """The server has sent a part of an answer."""
        if not self.is_asked:
            self.close()
            return
        self._unused += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(ConnectionError(f"the answer is no HTTP: {error}"))
            self.close()
            return
        if self._unused > LARGEST_HEAD and self.is_asked:
            self.fail(ConnectionError("the head of the answer is too large"))
            self.close()

    # From the parser

    def on_headers_complete(self) -> None:
        """A head is whole; only that of the answer itself is of use, not one of an interim answer."""
        if self._parser.get_status_code() >= 200:
            self._unused = 0


C = TypeVar("C", bound=HttpConnection)


class HttpPool(Generic[C]):
    """The connections to one server. ``room`` limits how many there are: whoever uses one has acquired it."""

    def __init__(
        self,
        server: str,
        ssl_context: ssl.SSLContext | None,
        server_name: str | None,
        connections: int,
        make: Callable[[asyncio.AbstractEventLoop], C],
    ) -> None:
        self.room = asyncio.Semaphore(connections)
        self._address: SplitResult = urlsplit(server)
        self._ssl = ssl_context
        self._server_name = server_name
        self._make = make
        self._idle: list[C] = []
        self._open_ones: set[HttpConnection] = set()

    def head(self, headers: Mapping[str, str]) -> str:
        """The headers of every request, as lines."""
        return lines({"Host": self._address.netloc, **headers})

    def path(self, target: str) -> str:
        """The path of a request: the server's own before ``target``, which is path and query, encoded."""
        return f"{self._address.path}{target}"

    def idle(self) -> C | None:
        """An open connection that nobody uses."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def connect(self) -> C:
        """A new connection, to the first address of the server that takes it. Raises OSError and TimeoutError."""
        loop = asyncio.get_running_loop()
        host, port = self._address.hostname or "", self._address.port or (443 if self._ssl else 80)
        async with asyncio.timeout(CONNECT_TIMEOUT):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure = OSError(f"{host} has no address")
        for number, _ in dict.fromkeys(socket.getnameinfo(address, _NUMBERS) for *_, address in found):
            try:
                return await self._connect(number, port)
            except OSError as error:  # also TimeoutError; another address may work
                failure = error
        raise failure

    async def _connect(self, host: str, port: int) -> C:
        """A new connection to one address."""
        server_name = (self._server_name or self._address.hostname) if self._ssl else None
        connection = self._made()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, host, port, ssl=self._ssl, server_hostname=server_name
                )
        except BaseException as error:
            connection.abandon()
            if not isinstance(error, ConnectionError) or str(error):
                raise
            raise ConnectionResetError("the server closed the connection during the TLS handshake") from error
        return connection

    def keep(self, connection: C) -> None:
        """Give a connection back for the next request."""
        if connection.is_open:
            self._idle.append(connection)

    async def close(self) -> None:
        """Close every connection, and wait until they are."""
        self._idle.clear()
        for connection in list(self._open_ones):
            connection.close()
            await connection.lost.wait()

    def _made(self) -> C:
        connection = self._make(asyncio.get_running_loop())
        connection.open_ones = self._open_ones
        return connection


def lines(headers: Mapping[str, str]) -> str:
    """Headers as they are sent."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
