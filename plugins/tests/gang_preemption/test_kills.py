"""Schedulers that are killed while they evict a gang, before and after each write, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import ApiError, resources
from gangline.simulate import Kubelet, SimulatedClient, running
from gangline.testing.gang_stories import ONE_LEAF, GangCluster, profile_with

from ..dying_client import DyingClient

PROFILE = profile_with("GangPreemption")
LOW = {f"low-{number}" for number in range(4)}


def left(cluster: GangCluster) -> set[str]:
    """The pods of the gang of low priority that have a node and are not going."""
    pods = [pod for pod in cluster.list(resources.PODS) if pod.metadata.name in LOW and pod.spec.node_name]
    return {pod.metadata.name for pod in pods if not pod.metadata.deletion_timestamp}


def marks(cluster: GangCluster) -> list[bool]:
    """Whether each pod of the gang is marked."""
    pods = [pod for pod in cluster.list(resources.PODS) if pod.metadata.name in LOW]
    return [any(each.type == "DisruptionTarget" for each in pod.status.conditions) for pod in pods]


@pytest.mark.parametrize("is_made", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("write", "number"), [(write, number) for write in ("patch", "delete") for number in (1, 2, 4)]
)
def test_the_next_scheduler_evicts_the_rest_of_a_gang_or_all_of_it_stays(
    write: str, number: int, is_made: bool
) -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_gang("low", 4, {}, priority=0)

    async def story() -> None:
        client = DyingClient(cluster.server, "low", write, number, is_made)
        client.is_armed = False
        kubelet = Kubelet(cluster.server, cluster.clock, stop_seconds=5)
        async with running(kubelet.run()):
            async with cluster.scheduling(PROFILE, client):
                await cluster.until(lambda: len(cluster.bound()) == 4)
                client.is_armed = True
                cluster.add_gang("high", 4, ONE_LEAF, priority=100)
                await client.is_dead.wait()
            all_are_marked = all(marks(cluster))
            for name in (f"high-{number}" for number in range(4)):  # nobody would preempt again
                cluster.server.delete(resources.PODS, name, grace_period_seconds=0)
            async with cluster.scheduling(PROFILE, SimulatedClient(cluster.server)):
                await asyncio.sleep(10.0)
        assert left(cluster) == (set() if all_are_marked else LOW)
        assert all_are_marked or write == "patch"

    cluster.play(story)


@pytest.mark.parametrize("failures", [1, 4, 9])
def test_what_a_failed_deletion_leaves_of_a_gang_is_evicted_although_nobody_preempts_again(failures: int) -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_gang("low", 4, {}, priority=0)
    failed: list[str] = []

    def fail(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb != "delete" or name != "low-2" or len(failed) == failures:
            return None
        if not failed:
            for high in (f"high-{number}" for number in range(4)):
                cluster.server.delete(resources.PODS, high, grace_period_seconds=0)
        failed.append(name)
        return ApiError(500, "InternalError", "try later")

    async def story() -> None:
        kubelet = Kubelet(cluster.server, cluster.clock, stop_seconds=5)
        client = SimulatedClient(cluster.server, faults=fail)
        async with running(kubelet.run()), cluster.scheduling(PROFILE, client):
            await cluster.until(lambda: len(cluster.bound()) == 4)
            cluster.add_gang("high", 4, ONE_LEAF, priority=100)
            await cluster.until(lambda: not left(cluster), 600)

    cluster.play(story)

    assert len(failed) == failures
