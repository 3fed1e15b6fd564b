"""Small writes over connections that stay open: bindings and events are most of what a scheduler sends.

A general client needs 0.19 ms of CPU for such a request, mostly for options that an API server never uses; this module
needs about a third of that.

Rules:
- One request at a time on a connection, and never another one after a failure, a time-out or a cancellation. Several
  requests may be sent at once (HTTP pipelining) if their order does not matter, and the loss of an answer does no harm.
- No request is sent twice: only the caller knows whether a write may happen twice.
- Whether a write may be sent is checked at the last moment, after all waiting.
- A write that was given up arrives soon or never: closing resets the connection, so the kernel sends no more data.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import httptools

from gangline.errors import Unavailable
from gangline.kube.connections import HttpConnection, HttpPool, lines
from gangline.kube.outbox import NOT_LEADING

MaySend = Callable[[], bool]
Posts = Sequence[tuple[str, bytes]]
"""The target and the body of each request."""


LARGEST_ANSWERS = 32 << 20
"""Bytes of the answers to requests that are sent together; an object in etcd has 1.5 MiB at most."""


class HttpAnswer(NamedTuple):
    """A whole answer of the API server. Of the head of a success nothing but the status has to be known."""

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
        self._pool = HttpPool(
            server, ssl_context, server_name, connections, lambda loop: _WritingConnection(loop, timeout)
        )
        self._head = self._pool.head(headers)
        self._last: tuple[Mapping[str, str], str] = {}, self._head
        """The headers of the last request, and the head of every request with these headers."""

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """See Writer."""
        return (await self._exchange(self._whole(method, target, headers, body), 1))[0]

    async def post_at_once(self, posts: Posts, headers: Mapping[str, str]) -> Sequence[HttpAnswer]:
        """Send several requests at once on one connection, and wait for the answers, which come in the same order.

        This takes half the CPU time of the same requests one after the other. If the connection breaks or the time is
        over, the answers that have come are returned; which of the other requests were carried out is unknown then. If
        none has come, raises as `request`.
        """
        whole = [self._whole("POST", target, headers, body) for target, body in posts]
        return await self._exchange(b"".join(whole), len(whole))

    def _whole(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """A request as it is sent."""
        start = f"{method} {self._pool.path(target)} HTTP/1.1\r\n"
        head = f"{start}{self._head_with(headers)}Content-Length: {len(body)}\r\n\r\n"
        return head.encode("latin-1") + body

    async def _exchange(self, data: bytes, number: int) -> Sequence[HttpAnswer]:
        """Send so many requests on a connection that nobody else uses meanwhile, and wait for the answers."""
        pool = self._pool
        await pool.room.acquire()  # not `async with`, which takes two coroutines more for each request
        try:
            connection = pool.idle() or await pool.connect()
            try:
                check(self._may_send)
                answers = await connection.request(data, number)
            except BaseException:
                connection.close()
                raise
            if len(answers) == number:
                pool.keep(connection)
            else:
                connection.close()
            return answers
        finally:
            pool.room.release()

    def _head_with(self, headers: Mapping[str, str]) -> str:
        """The lines of the head between the first one and the length of the body; nearly all requests have the same."""
        last, head = self._last
        if headers != last:
            head = f"{self._head}{lines(headers)}"
            self._last = dict(headers), head  # a copy: the caller may try again with other credentials
        return head

    async def close(self) -> None:
        """Close every connection, and wait until they are."""
        await self._pool.close()


class _WritingConnection(HttpConnection):
    """A connection for requests whose answers are small.

    Nearly every answer is a success, whose headers and phrase nobody reads. So the parser does not hand them out, which
    takes four fifths of the time of an answer; the head of another answer is parsed again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        super().__init__(loop)
        self._seconds = seconds
        self._waiter: asyncio.Future[Sequence[HttpAnswer]] | None = None
        self._number = 1
        """How many requests were sent together."""
        self._answers: list[HttpAnswer] = []
        """The answers to them that are whole."""
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._received: list[bytes] = []
        """All bytes since the request."""
        self._size = 0
        """Their number."""
        self._body: list[bytes] = []

    async def request(self, data: bytes, number: int) -> Sequence[HttpAnswer]:
        """Send so many requests and wait for the whole answers; see `KeptWriter.post_at_once`."""
        self._waiter = self._loop.create_future()
        self._received, self._size, self._body = [], 0, []
        self._number, self._answers = number, []
        self._due = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)
        try:
            self.send(data)
            return await self._waiter
        finally:
            self._waiter = None

    def _look(self) -> None:
        """The time of a request may be over. One timer serves many requests, because most are over long before."""
        self._timer = None
        if self._waiter is None:
            return
        left = self._due - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self.fail(TimeoutError())

    @property
    def is_asked(self) -> bool:
        """Whether a request is under way."""
        return self._waiter is not None

    def fail(self, error: Exception) -> None:
        """No more answers come."""
        if self._waiter is None or self._waiter.done():
            return
        if self._answers:
            self._waiter.set_result(self._answers)
        else:
            self._waiter.set_exception(error)

    # From the event loop

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by this side or by the server."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The server has sent a part of an answer."""
        self._received.append(data)
        self._size += len(data)
        if self._size > LARGEST_ANSWERS:
            self.fail(ConnectionError("the answer is too large"))
            self.close()
            return
        super().data_received(data)

    # From the parser

    def on_message_begin(self) -> None:
        """The head of an answer begins."""
        if self._waiter is None or self._waiter.done():
            self.close()  # nobody has asked for another answer

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._unused = 0
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        status = self._parser.get_status_code()
        if status < 200:
            return  # an interim answer; the final answer follows
        self.is_open = self.is_open and self._parser.should_keep_alive()
        if self._waiter is not None and not self._waiter.done():
            phrase, retry_after = "", None
            if status >= 300:
                heads = _RefusalHeads(b"".join(self._received)).found
                phrase, retry_after = heads[len(self._answers)]
            self._answers.append(HttpAnswer(status, phrase, retry_after, b"".join(self._body)))
            self._body = []
            if len(self._answers) == self._number:
                self._waiter.set_result(self._answers)
        if not self.is_open:
            self.close()


class _RefusalHeads:
    """What has to be known of the heads of answers that are no successes, read from all bytes since the request."""

    def __init__(self, received: bytes) -> None:
        self.found: list[tuple[str, str | None]] = []
        """The phrase and the Retry-After of each answer."""
        self._phrase = ""
        self._retry_after: str | None = None
        self._parser = httptools.HttpResponseParser(self)
        with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):  # what comes after is not of the answers
            self._parser.feed_data(received)

    # From the parser

    def on_message_begin(self) -> None:
        """An answer begins, perhaps an interim one."""
        self._phrase, self._retry_after = "", None

    def on_status(self, phrase: bytes) -> None:
        """The reason phrase, perhaps in parts."""
        self._phrase += phrase.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer, which comes too late to count."""
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """A head is whole: that of an answer itself or of an interim answer."""
        if self._parser.get_status_code() >= 200:
            self.found.append((self._phrase, self._retry_after))


def check(may_send: MaySend) -> None:
    """Raises Unavailable if a write may not be sent."""
    if not may_send():
        raise Unavailable(0, NOT_LEADING, "not sent: this process is no longer the leader")
