"""A standby that becomes the leader: what it reads again before it decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gangline import config
from gangline.kube.resources import NODES, PODS, Resource
from gangline.loop.scheduler import FRESH, Options, Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.simulate.cluster import running
from gangline.testing import make_node, make_pod

DEFAULT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
AGAIN = {"pods", "persistentvolumeclaims", "persistentvolumes", "resourceclaims"}


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
