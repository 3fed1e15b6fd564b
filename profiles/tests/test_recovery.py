"""A gang that loses nodes gets others at once: in its leaf, beside it, in its spine, anywhere; high priority first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from gangline import model
from gangline.kube.resources import NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.simulate import SimulatedCluster
from gangline.testing import make_node, make_pod
from gangline_profiles import read

NAME = "topology-aware-scheduler"
SPINE, LEAF = "topology.gangline.dev/spine", "topology.gangline.dev/leaf"
GROUP = "scheduling.x-k8s.io/pod-group"
AT_MOST = 30.0  # seconds of virtual time


class Fabric(SimulatedCluster):
    """Leaves of nodes with 8 GPUs, called leaf-0 and so on, three to a spine; pods take a node each."""

    def __init__(self, *nodes_of_leaves: int) -> None:
        super().__init__()
        for leaf, nodes in enumerate(nodes_of_leaves):
            for number in range(nodes):
                self.add_node(leaf, number)

    def add_node(self, leaf: int, number: int) -> None:
        labels = {SPINE: f"spine-{leaf // 3}", LEAF: f"leaf-{leaf}"}
        self.create(NODES, make_node(f"leaf-{leaf}-{number}", cpu=64, memory="512Gi", labels=labels))

    def add_gang(self, name: str, size: int, priority: int) -> None:
        meta = model.ObjectMeta(name=name, namespace="default")
        self.create(SCHEDULER_PLUGINS_POD_GROUPS, model.PodGroup(meta, model.PodGroupSpec(min_member=size)))
        for number in range(size):
            self.add_pod(name, f"{name}-{number}", priority)

    def add_pod(self, gang: str, name: str, priority: int) -> None:
        self.create(
            PODS,
            make_pod(
                name,
                gpus=8,
                labels={GROUP: gang},
                scheduler_name=NAME,
                priority=priority,
                preemption_policy="Never",
            ),
        )

    def lose(self, *pods: str) -> None:
        """The nodes of these pods are gone, and the pods with them."""
        for pod in pods:
            self.server.delete(NODES, self.bound()[pod])
            self.server.delete(PODS, pod, namespace="default", grace_period_seconds=0)

    def has(self, pod: str) -> bool:
        return pod in self.bound()

    def leaf(self, pod: str) -> str:
        return self.bound()[pod].rpartition("-")[0]


def test_a_lost_member_goes_to_its_leaf_then_beside_it_then_to_its_spine_then_anywhere() -> None:
    cluster = Fabric(4, 1, 1, 4)
    leaves: list[str] = []
    seconds: list[float] = []

    async def story() -> None:
        async with cluster.scheduling(read(NAME)):
            cluster.add_gang("a", 3, priority=0)
            await cluster.until(lambda: len(cluster.bound("a")) == 3)
            lost = "a-0"
            for again in ("b-0", "c-0", "d-0", "e-0"):
                cluster.lose(lost)
                cluster.add_pod("a", again, priority=0)
                seconds.append(await cluster.until(partial(cluster.has, again)))
                leaves.append(cluster.leaf(again))
                lost = again

    cluster.play(story)

    assert leaves == ["leaf-0", "leaf-1", "leaf-2", "leaf-3"]
    assert max(seconds) < AT_MOST


@pytest.mark.parametrize("apart", [0.0, 0.05])
@pytest.mark.parametrize("order", [("low", "high"), ("high", "low")])
def test_of_two_gangs_that_lose_a_node_the_one_of_higher_priority_comes_first(
    order: Sequence[str], apart: float
) -> None:
    cluster = Fabric(3, 4)
    priorities = {"low": 0, "high": 100}

    async def story() -> list[float]:
        async with cluster.scheduling(read(NAME)):
            cluster.add_gang("low", 3, priorities["low"])
            cluster.add_gang("high", 4, priorities["high"])
            await cluster.until(lambda: len(cluster.bound()) == 7)
            cluster.lose("low-0", "high-0")
            for name in order:
                cluster.add_pod(name, f"{name}-again", priorities[name])
                await asyncio.sleep(apart)
            await cluster.until(lambda: all(cluster.message(f"{name}-again") for name in order))
            cluster.add_node(0, 8)
            first = await cluster.until(lambda: cluster.has("high-again") or cluster.has("low-again"))
            assert not cluster.has("low-again")
            cluster.add_node(0, 9)
            return [first, await cluster.until(lambda: cluster.has("low-again"))]

    assert max(cluster.play(story)) < AT_MOST
