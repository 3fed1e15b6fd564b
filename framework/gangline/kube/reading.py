"""Reads whose answers may be long or have no end: lists and watches, over connections that stay open.

A general client has many options that an API server never uses, and takes 0.1 s and 10 MB to be loaded.

Rules:
- The answer is handed on in the parts in which it comes. If the reader is slow, the server has to wait: see `BUFFER`.
- Whoever has not read an answer to its end closes the connection.
- An answer that ends too early is an error, never a shorter answer.
- A request on a connection that the server has closed meanwhile, before it began to answer, is sent once more: a GET
  may be repeated.
- There are no redirects: no API server sends any.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

from gangline.kube.connections import HttpConnection, HttpPool, lines

BUFFER = 1 << 20
"""Bytes of an answer that are read ahead, and that are unpacked at a time."""
_GZIP = 16 + zlib.MAX_WBITS


class Limits(NamedTuple):
    """The time that an answer may take, in seconds; None means that there is no limit."""

    total: float | None = None
    """From the start of the request to the end of the answer."""
    silence: float | None = None
    """Between two parts of the answer."""


class StreamedAnswer(Protocol):
    """An answer whose head has come."""

    status: int
    phrase: str
    retry_after: str | None

    def parts(self) -> AsyncIterator[bytes]:
        """The body, as it comes; only once. Raises OSError and TimeoutError."""
        ...


class HttpReader(Protocol):
    """Sends a GET. Raises OSError and TimeoutError."""

    def open(
        self, target: str, headers: Mapping[str, str], limits: Limits
    ) -> AbstractAsyncContextManager[StreamedAnswer]:
        """The answer to a request; ``target`` is path and query, encoded."""
        ...

    async def close(self) -> None:
        """Close every connection."""


class KeptReader:
    """Reads directly from the API server; opens connections when needed, up to a limit, and keeps them."""

    def __init__(
        self,
        server: str,
        ssl_context: ssl.SSLContext | None,
        server_name: str | None,
        *,
        connections: int,
        headers: Mapping[str, str],
    ) -> None:
        self._pool = HttpPool(server, ssl_context, server_name, connections, _ReadingConnection)
        self._head = self._pool.head({**headers, "Accept-Encoding": "gzip"})

    @asynccontextmanager
    async def open(self, target: str, headers: Mapping[str, str], limits: Limits) -> AsyncIterator[StreamedAnswer]:
        """See HttpReader."""
        head = f"GET {self._pool.path(target)} HTTP/1.1\r\n{self._head}{lines(headers)}\r\n".encode("latin-1")
        end = math.inf if limits.total is None else asyncio.get_running_loop().time() + limits.total
        async with asyncio.timeout(limits.total):
            await self._pool.room.acquire()
        try:
            connection = await self._answering(head, limits, end)
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            if connection.finished():
                self._pool.keep(connection)
        finally:
            self._pool.room.release()

    async def close(self) -> None:
        """Close every connection, and wait until they are."""
        await self._pool.close()

    async def _answering(self, head: bytes, limits: Limits, end: float) -> _ReadingConnection:
        """A connection on which the head of the answer has come."""
        while (connection := self._pool.idle()) is not None:
            try:
                return await connection.ask(head, limits, end)
            except ConnectionError:
                if connection.has_heard:
                    raise
        async with asyncio.timeout_at(end if end < math.inf else None):
            connection = await self._pool.connect()
        return await connection.ask(head, limits, end)


class _ReadingConnection(HttpConnection):
    """A connection for requests whose answers are read in parts; also the answer that comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.status = 0
        self.phrase = ""
        self.retry_after: str | None = None
        self.has_heard = False
        """Whether the server has sent anything since the request."""
        self._encoding = ""
        self._has_length = False
        self._is_asked = False
        self._is_whole = False
        self._is_paused = False
        self._error: Exception | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end = self._silence = math.inf
        self._heard_at = 0.0

    async def ask(self, data: bytes, limits: Limits, end: float) -> _ReadingConnection:
        """Send a request and wait for the head of the answer; ``end`` is when the answer has to be whole."""
        self.status, self.phrase, self.retry_after, self._encoding = 0, "", None, ""
        self.has_heard = self._has_length = self._is_whole = False
        self._error, self._body, self._size = None, [], 0
        self._is_asked = True
        self._end = end
        self._silence = math.inf if limits.silence is None else limits.silence
        self._heard_at = self._loop.time()
        try:
            self.send(data)
            self._watch_time()
            while not self.status:
                await self._news()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close it for good."""
        super().close()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def finished(self) -> bool:
        """The answer is needed no longer; returns whether the connection can be used again, and else closes it."""
        self._stop_timer()
        if not (self._is_whole and self.is_open and not self._is_paused):
            self.close()
        self._is_asked = False
        self._error, self._body = None, []
        return self.is_open

    async def parts(self) -> AsyncIterator[bytes]:
        """See StreamedAnswer."""
        if self._encoding in ("", "identity"):
            while part := await self._next():
                yield part
            return
        if self._encoding not in ("gzip", "x-gzip"):
            raise ConnectionError(f"the answer is encoded as {self._encoding!r}")
        unpacking = _Unpacking()
        while part := await self._next():
            for piece in unpacking.pieces(part):
                yield piece
        unpacking.end()

    async def _next(self) -> bytes:
        """What has come; b"" at the end of the answer."""
        while not self._body:
            if self._is_whole:
                return b""
            await self._news()
        part = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body, self._size = [], 0
        if self._is_paused and self.is_open and self._transport is not None:
            self._is_paused = False
            self._heard_at = self._loop.time()
            self._transport.resume_reading()
        return part

    async def _news(self) -> None:
        """Wait until something has come. Raises the error that has ended the answer."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch_time(self) -> None:
        """End the answer if it has taken too long, and else look again when that may be so."""
        now = self._loop.time()
        if self._is_paused:  # the silence is not the server's
            self._heard_at = now
        due = min(self._end, self._heard_at + self._silence)
        if now >= due:
            self.fail(TimeoutError())
            self.close()
        elif due < math.inf:
            self._timer = self._loop.call_at(due, self._watch_time)

    # From the event loop

    @property
    def is_asked(self) -> bool:
        """Whether a request is under way."""
        return self._is_asked and self._error is None

    def fail(self, error: Exception) -> None:
        """The rest of the answer does not come."""
        if not self._is_asked or self._is_whole or self._error is not None:
            return
        if self.status and isinstance(error, ConnectionResetError):
            error = ConnectionResetError("the connection broke in the middle of the answer")
        self._error = error
        self._wake()

    def data_received(self, data: bytes) -> None:
        """The server has sent a part of an answer."""
        self.has_heard = True
        self._heard_at = self._loop.time()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; that is the end of an answer which has no length."""
        if exc is None and self.is_open and self.status and not self._has_length and self.is_asked:
            self._is_whole = True
            self._wake()
        super().connection_lost(exc)

    # From the parser

    def on_message_begin(self) -> None:
        """The head of an answer begins."""
        if self._is_whole:
            self.close()  # nobody has asked for another answer

    def on_status(self, phrase: bytes) -> None:
        """The reason phrase, perhaps in parts."""
        if not self.status:
            self.phrase += phrase.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or trailer."""
        if self.status:
            return
        name = name.lower()
        if name == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif name == b"content-encoding":
            self._encoding = value.decode("latin-1").strip().lower()
        elif name in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        """A head is whole."""
        super().on_headers_complete()
        status = self._parser.get_status_code()
        if status >= 200 and not self._is_whole:
            self.status = status
            self._wake()
        elif status < 200:  # an interim answer; the final answer follows
            self.phrase, self.retry_after, self._encoding, self._has_length = "", None, "", False

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._unused = 0
        if self._is_whole:
            return
        self._body.append(body)
        self._size += len(body)
        if self._size > BUFFER and not self._is_paused and self.is_open and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._parser.get_status_code() < 200 or self._is_whole:
            return
        self._is_whole = True
        keeps = self._parser.should_keep_alive()
        self._wake()
        if not keeps:
            self.close()


class _Unpacking:
    """Unpacks gzip in pieces of `BUFFER` bytes at most, however large it becomes."""

    def __init__(self) -> None:
        self._gzip = zlib.decompressobj(_GZIP)
        self._is_begun = False

    def pieces(self, packed: bytes) -> Iterator[bytes]:
        """What has been packed. Raises ConnectionError."""
        self._is_begun = True
        try:
            while True:
                if self._gzip.eof:
                    if not packed:
                        return
                    self._gzip = zlib.decompressobj(_GZIP)
                piece = self._gzip.decompress(packed, BUFFER)
                packed = self._gzip.unconsumed_tail or self._gzip.unused_data
                if piece:
                    yield piece
                if not packed and len(piece) < BUFFER:
                    return
        except zlib.error as error:
            raise ConnectionError(f"the answer is no gzip: {error}") from error

    def end(self) -> None:
        """There is no more. Raises ConnectionError if something is missing."""
        if self._is_begun and not self._gzip.eof:
            raise ConnectionError("the connection broke in the middle of the answer")
