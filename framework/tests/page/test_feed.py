"""The picture is made while somebody looks, once for everybody, and takes a hundredth of a core at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from gangline.page.feed import KEEP, KEPT, LINGER, PAUSE, REST, SHARE, Feed, Look
from gangline.page.tables import EVERYBODY, applied
from gangline.page.taking import TakenPart
from gangline.simulate.time import VirtualClock, run
from gangline.testing import make_pod

from .shown import ShownCluster, node


class Watched:
    """A feed over a small cluster, in virtual time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.shown = ShownCluster(node("n"))
        self.clock = VirtualClock()
        self.looks: list[float] = []
        self.fault: Exception | None = None
        self.seconds = seconds
        self.feed = Feed(self._looking, self.clock.monotonic)

    def _looking(self) -> Look:
        taker = self.shown.new_taker()

        async def look() -> TakenPart:
            self.looks.append(self.clock.monotonic())
            if self.fault is not None:
                raise self.fault
            taken = taker.take()
            return replace(taken, seconds=self.seconds)

        return look

    def play(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        run(story(), self.clock)


def decoded(part: bytes) -> Any:
    return msgspec.json.decode(part)


def test_nothing_is_made_before_somebody_looks_and_nothing_is_kept_long_after() -> None:
    watched = Watched()

    async def story() -> None:
        await asyncio.sleep(100.0)
        assert watched.looks == []
        first = await watched.feed.newest()
        epoch = watched.feed.epoch
        await asyncio.sleep(KEEP + 2 * REST)
        looks = len(watched.looks)
        await asyncio.sleep(100.0)

        assert not watched.feed.is_working and len(watched.looks) == looks
        assert watched.feed.edition(first.number) is None and watched.feed.epoch != epoch

    watched.play(story)


def test_a_kept_picture_is_looked_after_slowly_and_the_next_viewer_gets_the_newest() -> None:
    watched = Watched()

    async def story() -> None:
        await watched.feed.newest()
        await asyncio.sleep(LINGER + PAUSE)
        watched.looks.clear()
        await asyncio.sleep(10 * REST + 1.0)
        assert {round(after - at) for at, after in pairwise(watched.looks)} == {REST}
        watched.shown.bind(make_pod("p", gpus=1, node="n"))
        asked = watched.clock.monotonic()
        edition = await watched.feed.newest()

        assert watched.clock.monotonic() == asked and "p" in decoded(watched.feed.whole("default"))["pods"]
        await asyncio.sleep(LINGER + 2 * REST)
        assert watched.feed.edition(edition.number) is None  # nobody has followed
        epoch = watched.feed.epoch
        watched.shown.cache.remove_pod("pod-default-p")
        assert (await watched.feed.newest()).number > edition.number and watched.feed.epoch == epoch
        assert watched.feed.whole("default") == b"{}"

    watched.play(story)


def test_a_kept_picture_costs_a_hundredth_of_a_core_at_most() -> None:
    watched = Watched(seconds=1.0)

    async def story() -> None:
        await watched.feed.newest()
        await asyncio.sleep(10 * SHARE)

        assert 9 <= len(watched.looks) <= 10

    watched.play(story)


def test_a_viewer_who_comes_while_a_kept_picture_is_looked_after_misses_nothing() -> None:
    watched = Watched()

    async def story() -> None:
        edition = await watched.feed.newest()
        while watched.feed.edition(edition.number) is not None:  # until nobody has looked for long enough
            watched.shown.bind(make_pod(f"p-{len(watched.looks)}", gpus=0, node="n"))
            await asyncio.sleep(PAUSE / 3)
        watched.shown.bind(make_pod("last", gpus=1, node="n"))
        await watched.feed.newest()

        assert "last" in decoded(watched.feed.whole("default"))["pods"]

    watched.play(story)


def test_who_follows_has_the_same_as_who_asks_anew() -> None:
    watched = Watched()

    async def story() -> None:
        here = await watched.feed.newest()
        mine = {name: decoded(watched.feed.whole(name)) for name in (EVERYBODY, "default", "team")}
        for number in range(5):
            watched.shown.bind(make_pod(f"p-{number}", gpus=1, node="n", namespace="team" if number % 2 else "default"))
            watched.shown.cache.remove_pod(f"pod-default-p-{number - 2}")
            after = await watched.feed.after(here.number)
            assert after is not None
            mine = {name: applied(mine[name], decoded(after.changes.get(name, b"{}"))) for name in mine}
            here = after

        assert mine == {name: decoded(watched.feed.whole(name)) for name in mine}
        assert here.namespaces == {"default", "team"}

    watched.play(story)


def test_a_viewer_who_is_too_slow_has_to_start_anew() -> None:
    watched = Watched()

    async def story() -> None:
        first = await watched.feed.newest()
        for number in range(KEPT + 2):
            watched.shown.bind(make_pod(f"p-{number}", node="n", gpus=1))
            watched.feed.look_on()
            await asyncio.sleep(PAUSE)

        assert await watched.feed.after(first.number) is None
        assert await watched.feed.after(10_000) is None

    watched.play(story)


def test_all_viewers_share_one_look_and_one_text() -> None:
    watched = Watched()

    async def story() -> None:
        editions = await asyncio.gather(*(watched.feed.newest() for _ in range(5)))
        followers = [asyncio.create_task(watched.feed.after(editions[0].number)) for _ in range(5)]
        await asyncio.sleep(0)
        watched.shown.bind(make_pod("p", gpus=1, node="n"))
        found = await asyncio.gather(*followers)

        assert len(watched.looks) == 2
        assert len({id(edition) for edition in found}) == 1

    watched.play(story)


def test_a_look_that_takes_long_is_followed_by_a_long_pause() -> None:
    watched = Watched(seconds=0.05)

    async def story() -> None:
        await watched.feed.newest()
        for _ in range(10):
            watched.feed.look_on()
            await asyncio.sleep(2.0)

        pauses = [later - earlier for earlier, later in zip(watched.looks, watched.looks[1:], strict=False)]
        assert pauses and all(pause >= 0.05 * SHARE for pause in pauses)

    watched.play(story)


def test_a_look_that_fails_fails_the_page_and_the_next_viewer_tries_again() -> None:
    watched = Watched()
    watched.fault = ValueError("odd")

    async def story() -> None:
        with pytest.raises(ValueError, match="odd"):
            await watched.feed.newest()
        watched.fault = None

        assert (await watched.feed.newest()).number == 1

    watched.play(story)


def test_the_first_edition_has_every_node_of_a_large_cluster() -> None:
    watched = Watched()
    for number in range(700):
        watched.shown.cache.upsert_node(node(f"m-{number}"))

    async def story() -> None:
        assert (await watched.feed.newest()).number == 1

        assert len(decoded(watched.feed.whole(EVERYBODY))["nodes"]) == 701

    watched.play(story)


def test_the_first_picture_takes_each_row_and_the_queue_once() -> None:
    shown = ShownCluster(*(node(f"n-{number}") for number in range(5)))
    shown.wait(make_pod("w", gpus=1))
    parts = [shown.taker.take(2) for _ in range(4)]

    assert [len(part.rows) for part in parts] == [2, 2, 1, 5]  # then some rows in turn
    assert [part.units is not None for part in parts] == [False, False, True, True]
