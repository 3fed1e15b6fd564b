"""The follower misses nothing when a watch ends, and says so when something was lost; the clock and the figures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gangline_e2e.day.figures import rate, utilisation
from gangline_e2e.day.following import Follower
from gangline_e2e.day.judge import Sample
from gangline_e2e.day.playing import Clock
from gangline_e2e.day.sight import Node
from gangline_e2e.errors import HarnessError


class FakeApi:
    """A collection with one object at revision 1, and the watches that it answers, one after the other."""

    def __init__(self, *watches: list[dict[str, Any]]) -> None:
        self._watches = iter(watches)
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **params: object) -> Any:
        return {"metadata": {"resourceVersion": "1"}, "items": [_object("first", 1)]}

    async def lines(self, path: str, version: str, **params: str) -> AsyncIterator[bytes]:
        self.asked.append(version)
        for event in next(self._watches, []):
            if event["type"] == "BREAK":
                raise aiohttp.ClientPayloadError
            yield json.dumps(event).encode()


def _object(name: str, revision: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(revision)}}


def _event(kind: str, name: str, revision: int) -> dict[str, Any]:
    return {"type": kind, "object": _object(name, revision)}


async def test_a_watch_that_ends_or_breaks_goes_on_where_it_was() -> None:
    api = FakeApi(
        [_event("ADDED", "second", 2), {"type": "BREAK"}],
        [_event("MODIFIED", "second", 3), {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}],
        [_event("DELETED", "first", 10)],
        [{"type": "ERROR", "object": {"metadata": {}, "code": 410}}],
    )
    seen: list[tuple[str, str]] = []
    follower = Follower(api, "/nodes", Node, lambda event, node, now: seen.append((event, node.metadata.name)))  # type: ignore[arg-type]  # as much of an Api as it uses

    with pytest.raises(HarnessError, match="no history from 10 on"):
        await follower.run()

    assert seen == [("ADDED", "first"), ("ADDED", "second"), ("MODIFIED", "second"), ("DELETED", "first")]
    assert api.asked == ["1", "2", "9", "10"]


async def test_the_clock_of_a_day_stands_still_while_it_is_held() -> None:
    clock = Clock()
    clock.hold()
    before = clock.now()
    waiting = asyncio.create_task(clock.until(before + 0.01))
    await asyncio.sleep(0.05)

    assert clock.now() == before
    assert not waiting.done()
    clock.go_on()
    await asyncio.wait_for(waiting, 5)
    assert clock.held_s >= 0.05


def test_the_best_rate_is_that_of_the_busiest_window() -> None:
    moments = [0.0, 5.0, 10.0, 10.1, 10.2, 10.3, 30.0]

    assert rate(moments, 1.0) == 4
    assert rate([], 1.0) == 0


def test_utilisation_counts_while_something_waits() -> None:
    samples = [
        Sample(0, 50, 100, 0),
        Sample(1, 90, 100, 5),
        Sample(3, 60, 100, 1),
        Sample(4, 10, 100, 0),
    ]

    assert utilisation(samples) == pytest.approx((2 * 0.9 + 1 * 0.6) / 3)
