"""From a full cluster to a gang that is bound, on the in-memory API server: victims go as whole gangs, and no more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gangline import ApiError, resources
from gangline.simulate import Kubelet, SimulatedClient, running
from gangline.testing import make_pod
from gangline.testing.gang_stories import ONE_LEAF, GangCluster, profile_with


class Cluster(GangCluster):
    """A scheduler that makes room, and kubelets that take ten seconds to end a pod."""

    def __init__(self, leaves: int = 2) -> None:
        super().__init__(leaves)
        self.failing: set[str] = set()
        """Pods of which the next deletion fails."""

    def sizes(self) -> Counter[str]:
        """How many bound pods each gang has."""
        return Counter(name.rsplit("-", 1)[0] for name in self.bound())

    def fault(self, verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "delete" and name in self.failing:
            self.failing.discard(name)
            return ApiError(500, "InternalError", "try later")
        return None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        client = SimulatedClient(self.server, latency={"bind": 0.2, "delete": 0.05}, faults=self.fault)
        kubelet = Kubelet(self.server, self.clock, stop_seconds=10)
        async with self.scheduling(profile_with("GangPreemption"), client), running(kubelet.run()):
            yield


def preempted_by_high(cluster: Cluster) -> list[str]:
    """What victims are told when a gang of a high priority comes to eight bound pods and gets half of their room."""

    async def story() -> None:
        async with cluster.running():
            await cluster.until(lambda: len(cluster.bound()) == 8)
            cluster.add_gang("high", 4, ONE_LEAF, priority=100)
            await cluster.until(lambda: cluster.sizes()["high"] == 4)
            await asyncio.sleep(60)

    cluster.play(story)

    return [event.note for event in cluster.list(resources.EVENTS) if event.reason == "Preempted"]


def test_a_gang_gets_the_room_of_whole_gangs_and_is_bound_as_a_whole() -> None:
    cluster = Cluster()
    for number in range(4):
        cluster.add_gang(f"low{number}", 2, ONE_LEAF, priority=0)

    preempted = preempted_by_high(cluster)

    nodes = {node for pod, node in cluster.bound().items() if pod.startswith("high")}
    assert len(nodes) == 4 and len({node.split("-")[0] for node in nodes}) == 1
    assert sorted(cluster.sizes().values()) == [2, 2, 4]
    assert len(preempted) == 4
    assert all(note.startswith("Preempted by gang default/high on node l") for note in preempted)


def test_a_victim_of_another_namespace_is_not_told_the_name_of_the_gang() -> None:
    cluster = Cluster()
    alone = [make_pod(f"low{number}", gpus=8, namespace="elsewhere", scheduler_name="gangs") for number in range(8)]
    cluster.create(resources.PODS, *alone)

    preempted = preempted_by_high(cluster)

    assert len(preempted) == 4
    assert all(note.startswith("Preempted by a gang of another namespace on node l") for note in preempted)


def test_a_gang_of_middle_priority_does_not_get_the_room_that_was_made_for_a_higher_one() -> None:
    cluster = Cluster()
    cluster.add_gang("low", 8, {}, priority=0)

    async def story() -> None:
        async with cluster.running():
            await cluster.until(lambda: len(cluster.bound()) == 8)
            cluster.add_gang("high", 4, ONE_LEAF, priority=100)
            await cluster.until(lambda: not cluster.bound())
            cluster.add_gang("middle", 8, {}, priority=50)
            await cluster.until(lambda: cluster.sizes()["high"] == 4)
            await asyncio.sleep(60)

    cluster.play(story)

    assert cluster.sizes() == {"high": 4}


def test_after_a_deletion_that_failed_the_rest_of_the_gang_goes_too() -> None:
    cluster = Cluster(leaves=1)
    cluster.add_gang("low", 4, {}, priority=0)
    cluster.failing = {"low-3"}

    async def story() -> None:
        async with cluster.running():
            await cluster.until(lambda: len(cluster.bound()) == 4)
            cluster.add_gang("high", 4, ONE_LEAF, priority=100)
            await cluster.until(lambda: cluster.sizes()["high"] == 4, seconds=600)

    cluster.play(story)

    assert cluster.sizes() == {"high": 4} and not cluster.failing
    assert {pod.metadata.name for pod in cluster.list(resources.PODS)} == {f"high-{n}" for n in range(4)}


def test_a_gang_that_lost_its_room_to_a_higher_pod_keeps_nothing_from_lower_ones() -> None:
    cluster = Cluster(leaves=1)
    cluster.add_gang("low", 4, {}, priority=0)

    async def story() -> None:
        async with cluster.running():
            await cluster.until(lambda: len(cluster.bound()) == 4)
            cluster.add_gang("high", 4, {}, priority=100)
            await cluster.until(lambda: not cluster.bound())
            cluster.create(resources.PODS, make_pod("top", gpus=8, priority=1000, scheduler_name="gangs"))
            await cluster.until(lambda: "top" in cluster.bound())
            cluster.create(resources.PODS, make_pod("later", gpus=8, priority=0, scheduler_name="gangs"))
            await cluster.until(lambda: "later" in cluster.bound())
            await asyncio.sleep(60)

    cluster.play(story)

    assert set(cluster.bound()) == {"top", "later"}
    assert not any(pod.status.nominated_node_name for pod in cluster.list(resources.PODS) if not pod.spec.node_name)
