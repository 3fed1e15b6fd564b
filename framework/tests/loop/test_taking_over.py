"""A standby that becomes the leader: what it reads again before it decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

import pytest

from gangline import config
from gangline.kube import handing_over
from gangline.kube.handing_over import Writes
from gangline.kube.interface import WatchEvent
from gangline.kube.resources import NODES, PODS, Resource, T
from gangline.loop.following import TOLD_WITHIN
from gangline.loop.scheduler import FRESH, Options, Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.simulate.cluster import running
from gangline.testing import make_node, make_pod

DEFAULT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NOT_LEFT = {"resourceclaims"}
AGAIN = {"pods", "persistentvolumeclaims", "persistentvolumes", *NOT_LEFT}


@pytest.mark.parametrize(
    ("standby_s", "again"),
    [
        pytest.param(FRESH / 2, set[str](), id="just started"),
        pytest.param(60.0, AGAIN, id="has stood by"),
    ],
)
def test_what_leaders_write_is_listed_again_and_the_rest_is_watched_on(standby_s: float, again: set[str]) -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"))
    asked: list[tuple[str, str]] = []

    def note(verb: str, resource: Resource[Any], name: str) -> None:
        asked.append((verb, resource.key))

    async def after(lead: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(standby_s)
        asked.clear()
        await lead()

    async def story() -> None:
        client = SimulatedClient(cluster.server, faults=note)
        scheduler = Scheduler(config.load(DEFAULT, "test"), client, cluster.clock, Catalog.discover(), Options(seed=1))
        async with running(scheduler.run(after)):
            await asyncio.sleep(1.0)
            cluster.create(NODES, make_node("b"))
            cluster.create(PODS, make_pod("p"), make_pod("q"))
            await cluster.until(lambda: len(cluster.bound()) == 2, standby_s + 2.0)

    cluster.play(story)

    assert {key for verb, key in asked if verb == "list"} == again
    assert sorted(cluster.bound().values()) == ["a", "b"]
    if again:
        assert ("watch", "nodes") in asked


def test_without_an_election_nothing_is_listed_twice_however_long_the_start_takes() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"))
    cluster.create(PODS, make_pod("p"))
    listed: list[str] = []

    def note(verb: str, resource: Resource[Any], name: str) -> None:
        if verb == "list":
            listed.append(resource.key)

    async def story() -> None:
        client = SimulatedClient(cluster.server, latency={"list": 3 * FRESH}, faults=note)
        scheduler = Scheduler(config.load(DEFAULT, "test"), client, cluster.clock, Catalog.discover(), Options(seed=1))
        async with running(scheduler.run()):
            await cluster.until(lambda: bool(cluster.bound()), 20 * FRESH)

    cluster.play(story)

    assert len(listed) == len(set(listed)) and "pods" in listed


class LateClient(SimulatedClient):
    """Its watches tell everything so many seconds late."""

    late = 0.0

    async def watch(self, resource: Resource[T], **where: Any) -> AsyncIterator[WatchEvent[T]]:
        async with aclosing(cast("AsyncGenerator[WatchEvent[T], None]", super().watch(resource, **where))) as events:
            async for event in events:
                await asyncio.sleep(self.late)
                yield event


@pytest.mark.parametrize(
    ("left", "late", "listed"),
    [
        pytest.param(True, 0.0, NOT_LEFT, id="told"),
        pytest.param(True, TOLD_WITHIN / 5, NOT_LEFT, id="told late"),
        pytest.param(True, 4 * TOLD_WITHIN, NOT_LEFT | {"pods"}, id="told too late"),
        pytest.param(False, 4 * TOLD_WITHIN, AGAIN, id="nothing left"),
    ],
)
def test_a_new_leader_decides_when_it_has_seen_what_the_last_one_has_written(
    left: bool, late: float, listed: set[str]
) -> None:
    """The node has room for one pod, and the last leader has bound one there that the watch has not told yet."""
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("full", cpu="1"))
    asked: set[tuple[str, str]] = set()
    leads = asyncio.Event()
    versions: dict[str, int] = {}

    async def story() -> None:
        client = LateClient(cluster.server, faults=lambda verb, resource, name: asked.add((verb, resource.key)))
        options = Options(seed=1, handed_over=lambda: handing_over.said(versions))
        scheduler = Scheduler(config.load(DEFAULT, "test"), client, cluster.clock, Catalog.discover(), options)

        async def when_told(lead: Callable[[], Awaitable[None]]) -> None:
            await leads.wait()
            await lead()

        async with running(scheduler.run(when_told)):
            await asyncio.sleep(2 * FRESH)
            client.late = late
            cluster.create(PODS, make_pod("first", cpu="1"))
            cluster.server.bind("default", "first", "", "full", {})
            if left:
                versions.update(pods=cluster.server.version, persistentvolumes=0, persistentvolumeclaims=0)
            cluster.create(PODS, make_pod("second", cpu="1"))
            asked.clear()
            leads.set()
            await cluster.until(lambda: bool(cluster.notes("second")), 20)

    cluster.play(story)

    assert sorted(cluster.bound()) == ["first"]
    assert {key for verb, key in asked if verb == "list"} == listed


@pytest.mark.parametrize(("late", "leaves"), [(0.0, True), (TOLD_WITHIN / 5, True), (4 * TOLD_WITHIN, False)])
def test_a_leader_leaves_what_its_own_watches_have_told_of_its_writes(late: float, leaves: bool) -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"))
    writes = Writes()
    left = {}

    async def story() -> None:
        client = LateClient(cluster.server, latency={"bind": 0.02}, on_written=writes.note)
        options = Options(seed=1, writes=writes)
        scheduler = Scheduler(config.load(DEFAULT, "test"), client, cluster.clock, Catalog.discover(), options)
        async with running(scheduler.run()):
            await asyncio.sleep(2 * FRESH)
            client.late = late
            cluster.create(PODS, make_pod("p"))
            await cluster.until(lambda: bool(cluster.bound()), 20)
            assert await scheduler.finish()
            left.update(handing_over.read(scheduler.hands_over()))

    cluster.play(story)

    written = int(cluster.get(PODS, "p").metadata.resource_version)
    assert left.keys() == (
        {"pods", "persistentvolumes", "persistentvolumeclaims", "resourceclaims"} if leaves else set()
    )
    assert left.get("pods", written) == written


def test_versions_are_read_as_they_were_said_and_nothing_else_is_read() -> None:
    versions = {"pods": 12, "resourceclaims": 0}

    assert handing_over.read(handing_over.said(versions)) == versions
    for text in (
        "",
        "pods",
        "pods=",
        "pods=-1",
        "pods=1,",
        "pods=1;b=2",
        "pods=" + "9" * 21,
        "pods=\u0663",
        "a=1," * 40 + "a=1",
    ):
        assert handing_over.read(text) == {}


def test_a_process_that_is_told_to_stop_while_it_takes_over_decides_nothing_any_more() -> None:
    """It has said that nothing is under way, so its Lease is released; its cancellation comes a moment later."""
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"))
    leads = asyncio.Event()

    async def story() -> bool:
        client = SimulatedClient(cluster.server, latency={"list": 1.0})
        scheduler = Scheduler(config.load(DEFAULT, "test"), client, cluster.clock, Catalog.discover(), Options(seed=1))

        async def when_told(lead: Callable[[], Awaitable[None]]) -> None:
            await leads.wait()
            await lead()

        async with running(scheduler.run(when_told)):
            await asyncio.sleep(4 * FRESH)
            cluster.create(PODS, make_pod("p"))
            leads.set()
            await asyncio.sleep(0.5)
            is_clean = await scheduler.finish()
            await asyncio.sleep(10.0)
            return is_clean

    assert cluster.play(story)
    assert not cluster.bound()


@pytest.mark.parametrize("is_reloaded", [False, True], ids=["", "reloaded"])
def test_a_leader_that_is_told_to_stop_evicts_all_victims_of_which_it_has_evicted_some(is_reloaded: bool) -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a", cpu=2))
    cluster.create(PODS, make_pod("low-0", cpu=1, node="a"), make_pod("low-1", cpu=1, node="a"))

    def left() -> list[str]:
        pods = [pod.metadata for pod in cluster.list(PODS) if pod.metadata.name.startswith("low")]
        return sorted(each.name for each in pods if not each.deletion_timestamp)

    async def story() -> None:
        client = SimulatedClient(cluster.server, latency={"delete": 0.5})
        scheduler = Scheduler(config.load(DEFAULT, "test"), client, cluster.clock, Catalog.discover(), Options(seed=1))
        async with running(scheduler.run()):
            await asyncio.sleep(2 * FRESH)
            cluster.create(PODS, make_pod("high", cpu=2, priority=10))
            await cluster.until(lambda: len(left()) == 1, 20)
            if is_reloaded:  # as in a rollout that changes the configuration
                scheduler.use(config.load(DEFAULT, "test"))
            assert await scheduler.finish()

    cluster.play(story)

    assert left() == []
