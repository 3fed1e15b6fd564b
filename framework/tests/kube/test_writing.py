"""Small writes over kept connections: reuse, and what happens when a connection or an answer breaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gangline.errors import Unavailable
from gangline.kube.writing import HttpAnswer, KeptWriter
from gangline.process.tenure import Tenure
from gangline.testing import FakeClock

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server that answers each request with the next of its replies, byte for byte."""

    def __init__(self, *replies: bytes) -> None:
        self.replies = list(replies)
        self.requests: list[bytes] = []
        self.connections = 0
        self.heard = asyncio.Semaphore(0)
        self.closed = asyncio.Semaphore(0)

    async def all_closed(self) -> None:
        for _ in range(self.connections):
            await self.closed.acquire()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.replies:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                self.heard.release()
                reply = self.replies.pop(0)
                if reply == b"hang up":
                    break
                if reply == b"never":
                    await reader.read()
                await self.tell(writer, reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.closed.release()

    async def tell(self, writer: asyncio.StreamWriter, reply: bytes) -> None:
        for start in range(0, len(reply), 7):
            writer.write(reply[start : start + 7])
            await writer.drain()


class Whole(Peer):
    """The same, with each reply in one piece."""

    async def tell(self, writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(reply)
        await writer.drain()


@asynccontextmanager
async def talking(
    peer: Peer, seconds: float = 5.0, may_send: Callable[[], bool] = lambda: True
) -> AsyncIterator[KeptWriter]:
    server = await asyncio.start_server(peer.talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    writer = KeptWriter(
        f"http://127.0.0.1:{port}/base",
        None,
        None,
        connections=2,
        timeout=seconds,
        headers={"Accept": "application/json"},
        may_send=may_send,
    )
    try:
        yield writer
    finally:
        await writer.close()
        server.close()
        await server.wait_closed()
        async with asyncio.timeout(5):
            await peer.all_closed()


def reply(status: str = "201 Created", body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_requests_share_one_connection_while_they_come_one_after_the_other() -> None:
    peer = Peer(reply(body=b"one"), reply(body=b"two"))
    async with talking(peer) as writer:
        first = await writer.request("POST", "/api?x=1", {"Content-Type": "text/plain"}, b"hello")
        second = await writer.request("POST", "/api", {}, b"")

    assert (first, second.body) == (HttpAnswer(201, "", None, b"one"), b"two")
    assert peer.connections == 1
    assert peer.requests[0].startswith(b"POST /base/api?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello" in peer.requests[0]


async def test_a_chunked_answer_and_an_interim_one_are_read() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    chunked = interim + b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with talking(Peer(chunked, reply())) as writer:
        answer = await writer.request("POST", "/", {}, b"")
        again = await writer.request("POST", "/", {}, b"")

    assert (answer.status, answer.body, again.status) == (200, b"abcde", 201)


async def test_what_a_server_asks_to_wait_is_handed_on() -> None:
    async with talking(Peer(reply("429 Too Many Requests", b"", "Retry-After: 3"))) as writer:
        answer = await writer.request("POST", "/", {}, b"")

    assert (answer.status, answer.phrase, answer.retry_after) == (429, "Too Many Requests", "3")


@pytest.mark.parametrize("after", [b"garbage", b"HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"])
async def test_the_head_of_a_refusal_is_read_whatever_comes_before_and_after_it(after: bytes) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n"
    refusal = reply("429 Too Many Requests", b"busy", "RETRY-AFTER: 3")
    async with talking(Peer(hints + refusal + after)) as writer:
        answer = await writer.request("POST", "/", {}, b"")

    assert answer == HttpAnswer(429, "Too Many Requests", "3", b"busy")


async def test_each_request_of_a_connection_has_its_own_time() -> None:
    """One timer serves all of them."""
    loop, seconds = asyncio.get_running_loop(), 0.2
    async with talking(Peer(reply(), reply(), b"never"), seconds=seconds) as writer:
        for _ in range(2):
            await writer.request("POST", "/", {}, b"")
            await asyncio.sleep(seconds * 0.7)  # the first request's time ends while the third one waits
        began = loop.time()
        with pytest.raises(TimeoutError):
            await writer.request("POST", "/", {}, b"")

    assert seconds * 0.99 <= loop.time() - began < 2 * seconds


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    peer = Peer(reply("200 OK", b"{}", "Connection: close"), reply())
    async with talking(peer) as writer:
        await writer.request("POST", "/", {}, b"")
        await writer.request("POST", "/", {}, b"")

    assert peer.connections == 2


async def test_no_answer_in_time_is_a_time_out_and_the_next_request_gets_a_new_connection() -> None:
    peer = Peer(b"never", reply())
    async with talking(peer, seconds=0.05) as writer:
        with pytest.raises(TimeoutError):
            await writer.request("POST", "/", {}, b"")
        answer = await writer.request("POST", "/", {}, b"")

    assert (answer.status, peer.connections) == (201, 2)


@pytest.mark.parametrize("broken", [b"hang up", b"garbage\r\n\r\n"], ids=["hang-up", "garbage"])
async def test_a_broken_answer_is_an_error_and_nothing_is_sent_twice(broken: bytes) -> None:
    peer = Peer(broken)
    async with talking(peer) as writer:
        with pytest.raises(ConnectionError):
            await writer.request("POST", "/", {}, b"once")

    assert len(peer.requests) == 1


async def test_no_more_connections_are_opened_than_allowed() -> None:
    peer = Peer(*[reply()] * 20)
    async with talking(peer) as writer:
        await asyncio.gather(*(writer.request("POST", "/", {}, b"") for _ in range(20)))

    assert (len(peer.requests), peer.connections) == (20, 2)


async def test_a_request_is_not_sent_after_the_tenure_of_the_leader() -> None:
    clock, peer = FakeClock(), Peer(reply(), reply())
    tenure = Tenure(clock)
    tenure.extend(clock.monotonic() + 10.0)
    async with talking(peer, may_send=tenure.holds) as writer:
        await writer.request("POST", "/one", {}, b"{}")
        clock.advance(10.0)
        with pytest.raises(Unavailable, match="no longer the leader"):
            await writer.request("POST", "/two", {}, b"{}")

    assert [request.split()[1] for request in peer.requests] == [b"/base/one"]


async def test_whether_a_request_may_be_sent_is_asked_when_it_has_its_connection() -> None:
    """It has waited for another one's answer before, and much may have happened meanwhile."""
    clock, peer = FakeClock(), Peer(b"never", b"never", reply())
    tenure = Tenure(clock)
    tenure.extend(clock.monotonic() + 10.0)
    async with talking(peer, seconds=0.2, may_send=tenure.holds) as writer:
        first = [asyncio.create_task(writer.request("POST", "/held", {}, b"{}")) for _ in range(2)]
        last = asyncio.create_task(writer.request("POST", "/late", {}, b"{}"))
        for _ in first:
            await peer.heard.acquire()
        tenure.end()
        answers = await asyncio.gather(*first, last, return_exceptions=True)

    assert [type(answer) for answer in answers] == [TimeoutError, TimeoutError, Unavailable]
    assert len(peer.requests) == 2


POSTS = [(f"/{name}", name.encode()) for name in ("one", "two", "three")]


async def test_requests_that_are_sent_at_once_are_answered_in_order_on_one_connection() -> None:
    peer = Peer(reply(body=b"1"), reply("409 Conflict", body=b"2"), reply(body=b"3"), reply())
    async with talking(peer) as writer:
        answers = await writer.post_at_once(POSTS, {"X": "y"})
        await writer.request("POST", "/after", {}, b"")

    assert [(answer.status, answer.body) for answer in answers] == [(201, b"1"), (409, b"2"), (201, b"3")]
    assert [request.split(b"\r\n\r\n")[1] for request in peer.requests] == [b"one", b"two", b"three", b""]
    assert [b"\r\nX: y\r\n" in request for request in peer.requests] == [True, True, True, False]
    assert all(b"\r\nAccept: application/json\r\n" in request for request in peer.requests)
    assert peer.connections == 1


@pytest.mark.parametrize("then", [b"hang up", b"never", b"garbage\r\n\r\n"])
async def test_of_requests_that_are_sent_at_once_the_answers_that_come_are_handed_on(then: bytes) -> None:
    peer = Peer(reply(body=b"1"), then, reply(), reply())
    async with talking(peer, seconds=0.2) as writer:
        answers = await writer.post_at_once(POSTS, {})
        await writer.request("POST", "/after", {}, b"")

    assert [answer.body for answer in answers] == [b"1"]
    assert peer.connections == 2


async def test_requests_that_are_sent_at_once_and_get_no_answer_fail_as_one() -> None:
    async with talking(Peer(b"hang up")) as writer:
        with pytest.raises(ConnectionError):
            await writer.post_at_once(POSTS, {})


async def test_each_refusal_of_requests_that_are_sent_at_once_says_how_long_to_wait() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n"
    busy, trailers = "429 Too Many Requests", b"0\r\nRetry-After: 8\r\n\r\n"
    chunked = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n" + trailers
    peer = Peer(hints + reply(busy, b"no", "RETRY-AFTER: 3"), chunked, reply(busy, b"", "Retry-After: 5"))
    async with talking(peer) as writer:
        answers = await writer.post_at_once(POSTS, {})

    assert [(answer.phrase, answer.retry_after) for answer in answers] == [
        ("Too Many Requests", "3"),
        ("Busy", None),
        ("Too Many Requests", "5"),
    ]


class Talkative(Whole):
    """After the first answer a connection begins another one, and goes on with it before the second answer."""

    async def tell(self, writer: asyncio.StreamWriter, reply: bytes) -> None:
        begun, rest = self.more
        is_second = len(self.requests) > 1
        more = (rest + reply if is_second else reply + begun) if self.connections == 1 else reply
        await super().tell(writer, more)

    more: tuple[bytes, bytes] = (b"", b"")


@pytest.mark.parametrize("length", [9, -2, None])
async def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(length: int | None) -> None:
    peer, unasked = Talkative(reply(), reply()), reply("500 Oops")
    peer.more = unasked[:length], unasked[length:] if length else b""
    async with talking(peer) as writer:
        answers = [await writer.request("POST", "/", {}, b"") for _ in range(2)]

    assert [answer.status for answer in answers] == [201, 201]
    assert peer.connections == 2


async def test_an_answer_without_an_end_is_cut_off_and_is_an_error() -> None:
    part = b"x" * (1 << 20)
    endless = b"HTTP/1.1 201 Created\r\nContent-Length: 99999999999\r\n\r\n" + part * 33
    async with talking(Whole(endless)) as writer:
        with pytest.raises(ConnectionError, match="the answer is too large"):
            await writer.request("POST", "/", {}, b"")
