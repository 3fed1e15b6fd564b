"""A client that writes no more, and knows whether its last writes may still be carried out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress

import pytest

from gangline.errors import ApiError, Unavailable
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.outbox import ANSWERED_WITHIN, LANDING, Outbox
from gangline.simulate import VirtualClock, run

from .test_writing import Peer, reply


class HeldPeer(Peer):
    """Sends no reply until it is let go."""

    def __init__(self, *replies: bytes) -> None:
        super().__init__(*replies)
        self.lets_go = asyncio.Event()

    async def tell(self, writer: asyncio.StreamWriter, reply: bytes) -> None:
        await self.lets_go.wait()
        await super().tell(writer, reply)


@asynccontextmanager
async def writing_to(peer: Peer) -> AsyncIterator[HttpClient]:
    server = await asyncio.start_server(peer.talk, "127.0.0.1", 0)
    access = Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, HttpClient(Credentials(lambda: access), connections=1) as client:
        yield client


def bind(client: HttpClient) -> Awaitable[None]:
    return client.bind("default", "a", "uid", "node", {})


async def test_the_last_writes_are_waited_for_and_nothing_more_is_sent() -> None:
    peer = HeldPeer(reply())
    async with writing_to(peer) as client:
        first, second = (asyncio.ensure_future(bind(client)) for _ in range(2))  # one waits for the connection
        await peer.heard.acquire()
        stopping = asyncio.create_task(client.stop_writing())
        await asyncio.sleep(0)
        assert not stopping.done()
        peer.lets_go.set()

        assert await stopping
        await first
        with pytest.raises(Unavailable, match="not sent"):
            await second
        assert len(peer.requests) == 1


async def test_without_a_write_under_way_nothing_is_waited_for() -> None:
    async with writing_to(Peer()) as client:
        assert await client.stop_writing()


@pytest.mark.parametrize(
    ("answer", "is_settled"),
    [
        (reply(), True),
        (reply("409 Conflict"), True),
        (reply("429 Too Many Requests"), True),
        (reply("504 Gateway Timeout"), False),
        (b"hang up", False),
    ],
    ids=["200", "409", "429", "504", "the connection breaks"],
)
async def test_a_write_of_which_nobody_knows_what_became_of_it_may_still_arrive(
    answer: bytes, is_settled: bool
) -> None:
    async with writing_to(Peer(answer)) as client:
        with suppress(ApiError):
            await bind(client)

        assert await client.stop_writing() is is_settled


async def test_a_write_that_was_cancelled_may_still_arrive() -> None:
    peer = HeldPeer(reply())
    async with writing_to(peer) as client:
        write = asyncio.ensure_future(bind(client))
        await peer.heard.acquire()
        write.cancel()
        await asyncio.wait([write])

        assert not await client.stop_writing()


@pytest.mark.parametrize("ago", [LANDING - 1, LANDING])
def test_a_write_that_was_given_up_arrives_within_a_minute_or_never(ago: float) -> None:
    clock = VirtualClock()

    async def story() -> None:
        outbox = Outbox(monotonic=clock.monotonic)
        with suppress(TimeoutError), outbox:
            raise TimeoutError
        await asyncio.sleep(ago)
        assert await outbox.close() is (ago >= LANDING)

    run(story(), clock)


def test_a_write_that_gets_no_answer_is_waited_for_some_seconds_only() -> None:
    clock = VirtualClock()

    async def story() -> None:
        outbox = Outbox(monotonic=clock.monotonic)
        began = clock.monotonic()
        with outbox:
            assert not await outbox.close()
        assert clock.monotonic() - began == pytest.approx(ANSWERED_WITHIN)
        assert not outbox.may_send()

    run(story(), clock)
