"""A watch that is silent: what was bound keeps its room, until the API server says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gangline.errors import Unavailable
from gangline.kube.interface import WatchEvent
from gangline.kube.resources import NODES, PODS, Resource, T
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.state.cache import ASSUMED_LIFETIME
from gangline.testing import make_node, make_pod

DEFAULT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SEEN_S = 60.0
"""Seconds after which a dead connection shows by itself."""


class HalfOpenClient(SimulatedClient):
    """When told so, the watch of pods that is open tells nothing more, as if its connection were half open."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster.server, faults=self._fault)
        self.opened = 0
        self.is_cut_off = False
        """Whether reads fail, too."""
        self._silent = 0

    def silence(self) -> None:
        """The watch that is open now falls silent."""
        self._silent = self.opened

    def _fault(self, verb: str, resource: Resource[Any], name: str) -> Exception | None:
        is_read = verb == "get" and resource is PODS
        return Unavailable(0, "Timeout", "no answer in time") if self.is_cut_off and is_read else None

    async def watch(self, resource: Resource[T], **where: Any) -> AsyncIterator[WatchEvent[T]]:
        if resource is PODS:
            self.opened += 1
        number = self.opened
        async for event in super().watch(resource, **where):
            if resource is PODS and number <= self._silent:
                await asyncio.Event().wait()
            yield event


async def poke(cluster: SimulatedCluster, seconds: float) -> None:
    """The node changes every few seconds, so that pods which wait are tried again."""
    for number in range(int(seconds / 5)):
        cluster.server.patch(NODES, "a", {"metadata": {"labels": {"turn": str(number)}}})
        await asyncio.sleep(5.0)


def two_pods_for_one_node() -> tuple[SimulatedCluster, HalfOpenClient]:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a", cpu="1"))
    return cluster, HalfOpenClient(cluster)


def test_a_pod_that_the_watch_does_not_confirm_keeps_its_room() -> None:
    cluster, client = two_pods_for_one_node()

    async def story() -> None:
        async with cluster.scheduling(DEFAULT, client) as scheduler:
            cluster.create(PODS, make_pod("first", cpu="1"), make_pod("second", cpu="1"))
            await scheduler.synced()
            client.silence()
            await cluster.until(lambda: bool(cluster.bound()))
            opened = client.opened
            await poke(cluster, ASSUMED_LIFETIME + 20)
            assert len(cluster.bound()) == 1
            assert client.opened == opened + 1 and not scheduler.cache.assumed  # it watches anew
            (name,) = cluster.bound()
            cluster.server.delete(PODS, name, grace_period_seconds=0)
            await cluster.until(lambda: bool(cluster.bound()), 20)

    cluster.play(story)


def test_while_the_api_server_cannot_be_asked_the_room_stays_taken() -> None:
    cluster, client = two_pods_for_one_node()

    async def story() -> None:
        async with cluster.scheduling(DEFAULT, client) as scheduler:
            cluster.create(PODS, make_pod("first", cpu="1"), make_pod("second", cpu="1"))
            await scheduler.synced()
            client.silence()
            client.is_cut_off = True
            await cluster.until(lambda: bool(cluster.bound()))
            await poke(cluster, 4 * SEEN_S)
            assert len(cluster.bound()) == 1 and scheduler.cache.assumed == 1

    cluster.play(story)


@pytest.mark.parametrize(("end", "next_one"), [("deleted", "second"), ("Succeeded", "second"), ("waits", "first")])
def test_a_pod_that_the_api_server_does_not_have_on_its_node_gives_its_room_back(end: str, next_one: str) -> None:
    cluster, client = two_pods_for_one_node()
    first = make_pod("first", cpu="1", priority=1)

    async def story() -> float:
        async with cluster.scheduling(DEFAULT, client) as scheduler:
            cluster.create(PODS, first, make_pod("second", cpu="1"))
            await scheduler.synced()
            client.silence()
            await cluster.until(lambda: "first" in cluster.bound())
            if end == "Succeeded":
                cluster.server.patch(PODS, "first", {"status": {"phase": end}}, subresource="status")
            else:
                cluster.server.delete(PODS, "first", grace_period_seconds=0)
            if end == "waits":  # etcd was set back in time
                cluster.create(PODS, first)
            return await cluster.until(lambda: next_one in cluster.bound())

    assert cluster.play(story) <= ASSUMED_LIFETIME + 15
