"""Small writes over connections that stay open: bindings and events are most of what a scheduler sends.

A general client needs 0.19 ms of CPU for such a request, mostly for options that an API server never uses; this module
needs about a third of that. httptools parses HTTP.

Rules:
- One request at a time on a connection, and never another one after a failure, a time-out or a cancellation.
- No request is sent twice: only the caller knows whether a write may happen twice.
- Whether a write may be sent is checked at the last moment, after all waiting.
- A write that was given up arrives soon or never: closing resets the connection, so the kernel sends no more data.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, cast
from urllib.parse import SplitResult, urlsplit

import aiohttp
import httptools
from yarl import URL

from gangline.errors import Unavailable
from gangline.kube import sockets

MaySend = Callable[[], bool]

CONNECT_TIMEOUT = 10.0
"""Seconds."""


class HttpAnswer(NamedTuple):
    """A whole answer of the API server."""

    status: int
    phrase: str
    retry_after: str | None
    body: bytes


class Writer(Protocol):
    """Sends one request and waits for its answer. Raises OSError and TimeoutError, and Unavailable if the request may
    not be sent.
    """

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """Send a request and wait for the answer; ``target`` is path and query, encoded."""
        ...

    async def close(self) -> None:
        """Close every connection."""


class ProxiedWriter:
    """Writes through an HTTP proxy, by the general client; the session has the `last_check` among its traces."""

    def __init__(self, session: aiohttp.ClientSession, server: str, server_name: str | None) -> None:
        self._session = session
        self._server = server
        self._server_name = server_name

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """See Writer."""
        url = URL(f"{self._server}{target}", encoded=True)
        async with self._session.request(
            method, url, data=body, headers=headers, server_hostname=self._server_name
        ) as answer:
            text = await answer.read()
            return HttpAnswer(answer.status, answer.reason or "", answer.headers.get("Retry-After"), text)

    async def close(self) -> None:
        """Does nothing: the owner of the session closes it."""


class KeptWriter:
    """Writes directly to the API server; opens connections when needed, up to a limit, and keeps them."""

    def __init__(
        self,
        server: str,
        ssl_context: ssl.SSLContext | None,
        server_name: str | None,
        *,
        connections: int,
        timeout: float,
        headers: Mapping[str, str],
        may_send: MaySend = lambda: True,
    ) -> None:
        self._may_send = may_send
        self._address: SplitResult = urlsplit(server)
        self._ssl = ssl_context
        self._server_name = server_name
        self._timeout = timeout
        self._head = _lines({"Host": self._address.netloc, **headers})
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._room = asyncio.Semaphore(connections)

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """See Writer."""
        start = f"{method} {self._address.path}{target} HTTP/1.1\r\n"
        head = f"{start}{self._head}{_lines(headers)}Content-Length: {len(body)}\r\n\r\n"
        await self._room.acquire()  # not `async with`, which takes two coroutines more for each request
        try:
            connection = self._open_one() or await self._connect()
            try:
                _check(self._may_send)
                answer = await connection.request(head.encode("latin-1") + body)
            except BaseException:
                connection.close()
                raise
            if connection.is_open:
                self._idle.append(connection)
            return answer
        finally:
            self._room.release()

    async def close(self) -> None:
        """Close every connection, and wait until they are."""
        self._idle.clear()
        for connection in list(self._all):
            connection.close()
            await connection.lost.wait()

    def _open_one(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self) -> _Connection:
        address = self._address
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, connection = await loop.create_connection(
                lambda: _Connection(loop, self._timeout, self._all),
                address.hostname or "",
                address.port or (443 if self._ssl else 80),
                ssl=self._ssl,
                server_hostname=(self._server_name or address.hostname) if self._ssl else None,
            )
        return connection


class _Connection(asyncio.Protocol):
    """One connection; at most one request is under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, open_ones: set[_Connection]) -> None:
        self.is_open = False
        self.lost = asyncio.Event()
        self._all = open_ones
        self._seconds = seconds
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        self._phrase = ""
        self._retry_after: str | None = None
        self._body: list[bytes] = []

    async def request(self, data: bytes) -> HttpAnswer:
        """Send a request and wait for the whole answer."""
        assert self._transport is not None
        self._waiter = self._loop.create_future()
        self._phrase, self._retry_after, self._body = "", None, []
        timer = self._loop.call_later(self._seconds, self._fail, TimeoutError())
        try:
            self._transport.write(data)
            return await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def close(self) -> None:
        """Close it for good."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # From the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        sockets.bound(transport)
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by this side or by the server."""
        self.is_open = False
        self._all.discard(self)
        self.lost.set()
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        """The server has sent a part of an answer."""
        if self._waiter is None:
            self.close()  # no request is under way
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer is no HTTP: {error}"))
            self.close()

    # From the parser

    def on_status(self, phrase: bytes) -> None:
        """The reason phrase, perhaps in parts."""
        self._phrase += phrase.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        status = self._parser.get_status_code()
        if status < 200:
            return  # an interim answer; the final answer follows
        self.is_open = self.is_open and self._parser.should_keep_alive()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(HttpAnswer(status, self._phrase, self._retry_after, b"".join(self._body)))
        if not self.is_open:
            self.close()

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


def last_check(may_send: MaySend) -> aiohttp.TraceConfig:
    """Makes aiohttp call `may_send` before each write, when the connection is open and nothing is sent yet."""

    async def check(
        session: aiohttp.ClientSession, context: object, sent: aiohttp.TraceRequestHeadersSentParams
    ) -> None:
        if sent.method != "GET":
            _check(may_send)

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(check)
    return config


def _check(may_send: MaySend) -> None:
    if not may_send():
        raise Unavailable(0, "NotLeading", "not sent: this process is no longer the leader")


def _lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
