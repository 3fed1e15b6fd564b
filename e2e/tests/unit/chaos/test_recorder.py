"""The recorder, on a server that speaks as etcd's JSON gateway does, with connections that break."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from gangline_chaos.judge.history import Change
from gangline_chaos.recorder import HistoryLost, Recorder

Message = dict[str, Any]
Answers = Callable[[int], list[bytes]]


def event(revision: int, key: str, value: object = None, kind: str = "PUT") -> Message:
    encoded = base64.b64encode(json.dumps(value).encode()).decode()
    return {
        "type": kind,
        "kv": {"key": base64.b64encode(key.encode()).decode(), "mod_revision": str(revision), "value": encoded},
    }


def lines(*messages: list[Message]) -> bytes:
    return b"".join(json.dumps({"result": {"events": events}}).encode() + b"\n" for events in messages)


@asynccontextmanager
async def etcd(answers: Answers) -> AsyncIterator[str]:
    """Answers each watch with parts of a stream, by the revision from which it is, and ends it after a few."""

    async def watch(request: web.Request) -> web.StreamResponse:
        wanted = await request.json()
        response = web.StreamResponse()
        await response.prepare(request)
        for part in answers(int(wanted["create_request"]["start_revision"])):
            await response.write(part)
        return response

    async def newest(request: web.Request) -> web.Response:
        return web.json_response({"header": {"revision": "5"}})

    app = web.Application()
    app.add_routes([web.post("/v3/watch", watch), web.post("/v3/kv/range", newest)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def recorded(answers: Answers, until: Callable[[Recorder], Awaitable[object]]) -> tuple[list[Change], Recorder]:
    found: list[Change] = []
    async with etcd(answers) as url:
        recorder = Recorder(url, True, found.append)
        running = asyncio.create_task(recorder.run())
        waiting = asyncio.create_task(_wait(until, recorder))
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if running.done():
            await running
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return found, recorder


async def _wait(until: Callable[[Recorder], Awaitable[object]], recorder: Recorder) -> None:
    await until(recorder)


async def test_a_broken_connection_leaves_no_gap_and_nothing_is_told_twice() -> None:
    text = [event(2, "/a", {"n": 1}), event(3, "/b", {"n": 2}), event(3, "/c", {"n": 2})]
    later = [event(4, "/b", kind="DELETE"), event(5, "raw", 7)]
    half = lines([text[0]], text[1:], later)

    def answers(start: int) -> list[bytes]:
        if start == 2:
            return [half[:50], half[50:-40]]  # the last message is cut
        return [lines(later)] if start == 4 else []

    found, recorder = await recorded(answers, lambda recorder: recorder.caught_up())

    assert [change[1:] for change in found] == [
        (2, "/a", {"n": 1}),
        (3, "/b", {"n": 2}),
        (3, "/c", {"n": 2}),
        (4, "/b", None),
        (5, "raw", {}),
    ]
    assert recorder.connections >= 2


@pytest.mark.parametrize(
    "message",
    [
        lines([event(2, "/a", {}), event(4, "/b", {})]),
        lines([event(2, "/a", {})], [event(2, "/b", {})]),
        b'{"result": {"canceled": true, "compact_revision": "9"}}\n',
    ],
    ids=["a revision is skipped", "a revision comes in two parts", "revisions were compacted"],
)
async def test_a_gap_is_an_error(message: bytes) -> None:
    with pytest.raises(HistoryLost):
        await recorded(lambda start: [message], lambda recorder: recorder.caught_up())


async def test_a_watch_that_etcd_ends_is_begun_again() -> None:
    tries = iter([b'{"error": {"message": "etcd stops"}}\n', b'{"result": {"canceled": true}}\n'])
    whole = lines([event(n, "/a", {"n": n}) for n in range(2, 6)])

    def answers(start: int) -> list[bytes]:
        return [next(tries, whole)] if start == 2 else []

    found, _ = await recorded(answers, lambda recorder: recorder.caught_up())

    assert [change.revision for change in found] == [2, 3, 4, 5]
