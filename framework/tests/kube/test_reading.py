"""Long answers over kept connections, from servers that break, stall, lie and flood, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import ssl
import weakref
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gangline.kube.connections import LARGEST_HEAD
from gangline.kube.reading import BUFFER, KeptReader, Limits, StreamedAnswer

from .certificates import Certificates

Act = bytes | Callable[["Peer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
PATIENT = Limits(total=20.0)


class Peer:
    """A server that answers each request with the next of its replies: bytes, or something that it does."""

    def __init__(self, *replies: Act) -> None:
        self.replies = list(replies)
        self.requests: list[bytes] = []
        self.connections = 0
        self.sent = 0
        self.heard = asyncio.Event()
        self.gone = asyncio.Semaphore(0)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self.replies:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                self.heard.set()
                act = self.replies.pop(0)
                if isinstance(act, bytes):
                    writer.write(act)
                    await writer.drain()
                else:
                    await act(self, reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.gone.release()


@asynccontextmanager
async def talking(
    peer: Peer, connections: int = 2, certificates: Certificates | None = None
) -> AsyncIterator[KeptReader]:
    served = trusted = None
    if certificates is not None:
        served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        served.load_cert_chain(certificates.server, certificates.server_key)
        trusted = ssl.create_default_context(cafile=str(certificates.ca))
    server = await asyncio.start_server(peer.talk, "127.0.0.1", 0, ssl=served)
    where = f"{'https' if trusted else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/base"
    reader = KeptReader(where, trusted, None, connections=connections, headers={"X": "y"})
    try:
        yield reader
    finally:
        await reader.close()
        server.close()
        async with asyncio.timeout(10):
            await server.wait_closed()
            for _ in range(peer.connections):
                await peer.gone.acquire()


async def read(reader: KeptReader, limits: Limits = PATIENT, target: str = "/api?x=1") -> bytes:
    async with reader.open(target, {"Accept": "a/b"}, limits) as answer:
        return b"".join([part async for part in answer.parts()])


def sized(body: bytes, *headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body


def then_close(data: bytes) -> Act:
    async def act(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return act


def endlessly(*parts: bytes) -> Act:
    """Sends the last part again and again, until the client has had enough."""

    async def act(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
        while not writer.is_closing():
            writer.write(parts[-1])
            peer.sent += len(parts[-1])
            await writer.drain()

    return act


def dripping(data: bytes, every: float) -> Act:
    """Sends one byte after the other."""

    async def act(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in data:
            if writer.is_closing():
                return
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(every)

    return act


async def silence(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


# Whole answers


async def test_requests_share_one_connection_while_they_come_one_after_the_other() -> None:
    peer = Peer(WHOLE, sized(b"two"), b"HTTP/1.1 204 No Content\r\n\r\n", WHOLE)
    async with talking(peer) as reader:
        bodies = [await read(reader) for _ in range(4)]

    assert bodies == [b"abcde", b"two", b"", b"abcde"]
    assert peer.connections == 1
    assert peer.requests[0].startswith(b"GET /base/api?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nX: y\r\nAccept-Encoding: gzip\r\nAccept: a/b\r\n\r\n" in peer.requests[0]


async def test_the_head_says_what_the_server_thinks() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\nContent-Encoding: br\r\n\r\n"
    busy = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\nno"
    async with talking(Peer(interim + busy)) as reader, reader.open("/", {}, PATIENT) as answer:
        assert (answer.status, answer.phrase, answer.retry_after) == (429, "Too Many Requests", "3")
        assert [part async for part in answer.parts()] == [b"no"]


@pytest.mark.parametrize("members", [1, 3])
async def test_a_packed_answer_is_unpacked(members: int) -> None:
    body = b"".join(bytes([65 + number]) * 300_000 for number in range(members))
    packed = b"".join(gzip.compress(bytes([65 + number]) * 300_000) for number in range(members))
    peer = Peer(sized(packed, "Content-Encoding: gzip"), sized(b"", "Content-Encoding: gzip"), WHOLE)
    async with talking(peer) as reader:
        assert await read(reader) == body
        assert (await read(reader), await read(reader), peer.connections) == (b"", b"abcde", 1)


async def test_what_comes_byte_by_byte_is_whole() -> None:
    packed = gzip.compress(b"slow but whole")
    data = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + b"%x\r\n%b\r\n0\r\n\r\n"
    async with talking(Peer(dripping(data % (len(packed), packed), 0.0))) as reader:
        assert await read(reader) == b"slow but whole"


async def test_without_a_length_the_end_of_the_connection_is_the_end_of_the_answer() -> None:
    peer = Peer(then_close(b"HTTP/1.1 200 OK\r\n\r\nall of it"), WHOLE)
    async with talking(peer) as reader:
        assert await read(reader) == b"all of it"
        assert await read(reader) == b"abcde"
    assert peer.connections == 2


# Answers that end too early


@pytest.mark.parametrize("whole", [WHOLE, sized(b"abcde")], ids=["chunked", "sized"])
async def test_an_answer_that_is_cut_at_any_byte_is_an_error(whole: bytes) -> None:
    """Never a shorter list: a scheduler would take the missing pods for deleted."""
    peer = Peer(*(then_close(whole[:length]) for length in range(len(whole))), whole)
    async with talking(peer) as reader:
        for _ in range(len(whole)):
            with pytest.raises(ConnectionError):
                await read(reader)
        assert await read(reader) == b"abcde"

    assert len(peer.requests) == len(whole) + 1


async def test_a_packed_answer_that_is_cut_is_an_error() -> None:
    packed = gzip.compress(b"abc" * 1000)
    cut = [sized(packed[:length], "Content-Encoding: gzip") for length in range(1, len(packed))]
    async with talking(Peer(*cut)) as reader:
        for _ in cut:
            with pytest.raises(ConnectionError):
                await read(reader)


async def test_events_before_a_reset_are_read_and_then_it_is_an_error() -> None:
    seen, has_seen = [], asyncio.Event()

    async def reset_when_seen(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"6\r\nevent\n\r\n")
        await has_seen.wait()
        writer.transport.abort()

    async with talking(Peer(reset_when_seen)) as reader:
        with pytest.raises(ConnectionError, match="in the middle of the answer"):
            async with reader.open("/", {}, PATIENT) as answer:
                async for part in answer.parts():
                    seen.append(part)
                    has_seen.set()

    assert seen == [b"event\n"]


# Answers that are no HTTP, too large, or never end


NO_ANSWERS = {
    "garbage": b"garbage\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    "a chunk of no size": CHUNKED + b"ffffffffffffffffff\r\n",
    "a chunk of a negative size": CHUNKED + b"-1\r\n",
    "two lengths": sized(b"abc", "Content-Length: 7"),
    "no gzip": sized(b"abc", "Content-Encoding: gzip"),
    "zlib": sized(zlib.compress(b"abc"), "Content-Encoding: gzip"),
    "more than gzip": sized(gzip.compress(b"abc") + b"more", "Content-Encoding: gzip"),
    "an encoding that was not asked for": sized(b"abc", "Content-Encoding: br"),
}


@pytest.mark.parametrize("data", NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_what_is_no_answer_is_an_error_and_leaves_no_traceback(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(data, WHOLE)
    async with talking(peer) as reader:
        with pytest.raises(ConnectionError):
            await read(reader)
        assert await read(reader) == b"abcde"

    assert not caplog.records


FLOODS = {
    "one header": [b"HTTP/1.1 200 OK\r\nX: ", b"x" * 10_000],
    "headers": [b"HTTP/1.1 200 OK\r\n", b"X-Name: value\r\n" * 1000],
    "interim answers": [b"HTTP/1.1 103 Early Hints\r\n\r\n" * 500],
    "a phrase": [b"HTTP/1.1 200 ", b"OK" * 5000],
    "a trailer": [CHUNKED + b"1\r\na\r\n0\r\nX: ", b"x" * 10_000],
    "an extension of a chunk": [CHUNKED + b"1;x=", b"x" * 10_000],
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_what_floods_everything_but_the_body_is_cut_off(flood: str) -> None:
    peer = Peer(endlessly(*FLOODS[flood]))
    async with talking(peer) as reader:
        with pytest.raises(ConnectionError):
            await read(reader)

    assert peer.sent < 200 * LARGEST_HEAD  # the kernel's buffers at both ends


async def test_a_head_of_a_megabyte_is_refused() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n"
    async with talking(Peer(head)) as reader:
        with pytest.raises(ConnectionError, match="the head of the answer is too large"):
            await read(reader)


async def test_what_packs_a_flood_comes_in_small_pieces() -> None:
    packed = gzip.compress(bytes(16 << 20), 9)
    sizes: list[int] = []
    peer = Peer(sized(packed, "Content-Encoding: gzip"))
    async with talking(peer) as reader, reader.open("/", {}, PATIENT) as answer:
        async for part in answer.parts():
            sizes.append(len(part))

    assert max(sizes) <= BUFFER and sum(sizes) == 16 << 20


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_waits_for_a_slow_reader(scheme: str, certificates: Certificates) -> None:
    """Else the events that nobody has read yet would fill the memory."""
    total = 16 << 20  # more than what fits into the buffers of the kernel
    peer = Peer(sized(bytes(total)), WHOLE)
    async with talking(peer, certificates=certificates if scheme == "https" else None) as reader:
        async with reader.open("/", {}, Limits(silence=20.0)) as answer:
            while not paused(answer):  # noqa: ASYNC110  # nothing tells when it pauses
                await asyncio.sleep(0)
            for _ in range(1000):
                await asyncio.sleep(0)
            kept = answer._size  # type: ignore[attr-defined]  # what waits to be read
            size = sum([len(part) async for part in answer.parts()])
        assert await read(reader) == b"abcde"

    assert (size, peer.connections) == (total, 1)
    assert kept < 3 * BUFFER


def paused(answer: StreamedAnswer) -> bool:
    return bool(answer._is_paused)  # type: ignore[attr-defined]


# Time


@pytest.mark.parametrize("limits", [Limits(total=0.2), Limits(silence=0.2)], ids=["total", "silence"])
@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n", CHUNKED + b"3\r\nab"], ids=["mute", "head", "body"])
async def test_a_server_that_falls_silent_is_given_up(limits: Limits, begun: bytes) -> None:
    async def stall(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/stall" not in peer.requests[-1]:
            writer.write(WHOLE)
            return
        writer.write(begun)
        await reader.read()

    async with talking(Peer(stall, stall)) as reader:
        with pytest.raises(TimeoutError):
            await read(reader, limits, "/stall")
        assert await read(reader) == b"abcde"


async def test_a_server_that_sends_a_byte_now_and_then_is_given_up_in_time() -> None:
    async with talking(Peer(dripping(WHOLE, 0.02))) as reader:
        with pytest.raises(TimeoutError):
            await read(reader, Limits(total=0.2, silence=10.0))


async def test_a_long_answer_may_take_longer_than_a_silence() -> None:
    async with talking(Peer(dripping(WHOLE, 0.05))) as reader:
        assert await read(reader, Limits(silence=2.0)) == b"abcde"


async def test_whoever_waits_for_a_connection_gives_up_in_time() -> None:
    async with talking(Peer(silence), connections=1) as reader:
        first = asyncio.create_task(read(reader, Limits(total=1.0)))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await read(reader, Limits(total=0.05))
        with pytest.raises(TimeoutError):
            await first


# Connections


async def test_a_connection_that_was_closed_meanwhile_costs_nothing() -> None:
    """The server closes idle connections, and its message may cross the next request."""
    peer = Peer(WHOLE, then_close(b""), WHOLE)
    async with talking(peer) as reader:
        assert await read(reader) == b"abcde"
        assert await read(reader) == b"abcde"

    assert (peer.connections, len(peer.requests)) == (2, 3)


async def test_a_request_is_not_repeated_once_the_answer_has_begun() -> None:
    peer = Peer(WHOLE, then_close(b"HTTP/1.1 200"), WHOLE)
    async with talking(peer) as reader:
        await read(reader)
        with pytest.raises(ConnectionError):
            await read(reader)

    assert len(peer.requests) == 2


async def test_a_request_is_not_repeated_on_a_new_connection() -> None:
    peer = Peer(then_close(b""), WHOLE)
    async with talking(peer) as reader:
        with pytest.raises(ConnectionError, match="the server closed the connection"):
            await read(reader)

    assert len(peer.requests) == 1


@pytest.mark.parametrize("more", [b"x", WHOLE], ids=["garbage", "an answer"])
async def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(more: bytes) -> None:
    peer = Peer(sized(b"mine") + more, sized(b"right"))
    async with talking(peer) as reader:
        first, second = await asyncio.gather(read(reader), asyncio.sleep(0), return_exceptions=True)
        found = await read(reader)

    assert found == b"right" and second is None
    assert first == b"mine" or isinstance(first, ConnectionError)
    assert peer.connections == 2


async def test_what_is_not_read_to_its_end_gives_its_place_back() -> None:
    peer = Peer(CHUNKED + b"1\r\na\r\n", CHUNKED + b"1\r\na\r\n", WHOLE)
    async with talking(peer, connections=1) as reader:
        async with reader.open("/", {}, PATIENT):
            pass
        with pytest.raises(KeyError):
            async with reader.open("/", {}, PATIENT) as answer:
                async for _ in answer.parts():
                    raise KeyError
        assert await read(reader) == b"abcde"

    assert peer.connections == 3


async def test_a_reader_that_is_cancelled_gives_its_place_back() -> None:
    peer = Peer(silence, WHOLE)
    async with talking(peer, connections=1) as reader:
        reading = asyncio.create_task(read(reader))
        await peer.heard.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await read(reader) == b"abcde"


async def test_nothing_keeps_what_was_given_up_in_memory_until_its_time_is_over() -> None:
    peer = Peer(CHUNKED + b"1\r\na\r\n")
    async with talking(peer) as reader:
        kept: list[weakref.ref[StreamedAnswer]] = []
        with pytest.raises(KeyError):
            async with reader.open("/", {}, Limits(total=600.0)) as answer:
                kept.append(weakref.ref(answer))
                raise KeyError
        del answer  # pyright: ignore[reportPossiblyUnboundVariable]
        async with asyncio.timeout(5):
            while kept[0]() is not None:
                await asyncio.sleep(0)
                gc.collect()


async def test_no_more_connections_are_opened_than_allowed() -> None:
    peer = Peer(*[WHOLE] * 20)
    async with talking(peer) as reader:
        bodies = await asyncio.gather(*(read(reader) for _ in range(20)))

    assert (set(bodies), peer.connections) == ({b"abcde"}, 2)


async def test_closing_ends_what_is_under_way() -> None:
    peer = Peer(silence)
    async with talking(peer) as reader:
        reading = asyncio.create_task(read(reader))
        await peer.heard.wait()
        await reader.close()
        with pytest.raises(ConnectionError):
            await reading
