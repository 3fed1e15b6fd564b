"""Devices of a node that goes while they are being locked are given back, and the pods get devices elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import custom_resources, resources
from gangline.testing import make_node

from ..gpu_cases import report
from ..lease_cases import LeaseCluster

GONE = "the node node-0 that was chosen is no longer there"
GANG = {"gang.scheduling.koordinator.sh/name": "a", "gang.scheduling.koordinator.sh/min-available": "2"}


class Goes:
    """A node is deleted while the first lease on it is being written; notes which pods were bound to which node."""

    def __init__(self, cluster: LeaseCluster, node: str, comes_back: bool = False) -> None:
        self.binds: list[str] = []
        self._cluster = cluster
        self._node = node
        self._comes_back = comes_back
        self._is_gone = False

    def __call__(self, verb: str, resource: resources.Resource[Any], name: str) -> None:
        if verb == "bind":
            self.binds.append(name)
        if (
            verb == "create"
            and resource is resources.LEASES
            and name.startswith(f"gpu-{self._node}")
            and not self._is_gone
        ):
            self._is_gone = True
            self._cluster.server.delete(resources.NODES, self._node)
            self._cluster.server.delete(resources.GPU_NODE_STATUSES, self._node)
            if self._comes_back:  # another machine: the first two GPUs are not healthy
                node = make_node(self._node)
                node.metadata.uid = "another"
                self._cluster.create(
                    resources.GPU_NODE_STATUSES, report(self._node, health={0: "Unhealthy", 1: "Unhealthy"})
                )
                self._cluster.create(resources.NODES, node)


@pytest.mark.parametrize("granularity", ["device", "node"])
def test_a_pod_gets_devices_of_another_node_and_its_locks_are_gone(granularity: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    cluster.add_pod("train")
    goes = Goes(cluster, "node-0")

    async def story() -> None:
        async with cluster.scheduler(faults=goes, granularity=granularity):
            await cluster.until(lambda: GONE in cluster.notes("train") and not cluster.leases())
            cluster.create(resources.GPU_NODE_STATUSES, report("node-1"))
            cluster.create(resources.NODES, make_node("node-1"))
            await cluster.until_bound("train")

    cluster.play(story)

    assert goes.binds == ["train"] and cluster.pod("train").spec.node_name == "node-1"
    assert cluster.held() == cluster.allocated()


def test_devices_that_were_chosen_for_a_node_are_not_those_of_another_one_of_its_name() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    cluster.add_pod("train")
    goes = Goes(cluster, "node-0", comes_back=True)

    async def story() -> None:
        async with cluster.scheduler(faults=goes):
            await cluster.until_bound("train")
            await cluster.until(lambda: GONE in cluster.notes("train") and cluster.held() == cluster.allocated())

    cluster.play(story)

    assert goes.binds == ["train"]
    assert (cluster.pod("train").metadata.annotations or {})[custom_resources.ALLOCATED] == "2,3"


def test_a_gang_gives_all_its_devices_back_when_the_node_of_a_member_goes() -> None:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=8)
    for name in ("a-0", "a-1"):
        cluster.add_pod(name, annotations=GANG)
    goes = Goes(cluster, "node-1")

    async def story() -> None:
        async with cluster.scheduler(faults=goes, gangs=True):
            await cluster.until(lambda: "node-1" not in str(cluster.list(resources.NODES)) and not cluster.leases())
            assert not goes.binds
            cluster.create(resources.GPU_NODE_STATUSES, report("node-2"))
            cluster.create(resources.NODES, make_node("node-2"))
            await cluster.until_bound("a-0", "a-1")

    cluster.play(story)

    assert sorted(pod.spec.node_name for pod in cluster.pods()) == ["node-0", "node-2"]
    assert cluster.held() == cluster.allocated()
