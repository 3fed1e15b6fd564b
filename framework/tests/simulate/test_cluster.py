"""Stories on a simulated cluster: schedulers come and go, and what holds is waited for in virtual time."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from gangline import PodInfo, Status, hookimpl, unschedulable
from gangline.errors import Unavailable
from gangline.kube.resources import NODES, PODS, Resource
from gangline.simulate import Kubelet, SimulatedClient, SimulatedCluster, running
from gangline.testing import make_node, make_pod

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: Picky}]}}
"""


class Picky:
    """Takes no pod that is called bad."""

    name = "Picky"

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        return unschedulable("bad name") if pod.name == "bad" else None


@pytest.fixture
def cluster() -> SimulatedCluster:
    """A node and two pods, of which Picky takes one."""
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"))
    cluster.create(PODS, make_pod("good", gpus=1), make_pod("bad", gpus=1))
    return cluster


def test_a_plugin_that_is_handed_in_decides(cluster: SimulatedCluster) -> None:
    async def story() -> None:
        async with cluster.scheduling(PROFILE, plugins=[Picky]):
            await cluster.until(lambda: bool(cluster.bound() and cluster.notes("bad")))

    cluster.play(story)

    assert cluster.bound() == {"good": "a"} and not cluster.bound("bad")
    assert "bad name" in cluster.message("bad") and cluster.message("good") == ""
    assert all("bad name" in note for note in cluster.notes("bad"))


def test_what_does_not_come_true_is_an_error_that_names_the_pods_that_wait(cluster: SimulatedCluster) -> None:
    async def story() -> None:
        async with cluster.scheduling(PROFILE, plugins=[Picky]):
            await cluster.until(lambda: len(cluster.bound()) == 2, seconds=30.0)

    with pytest.raises(TimeoutError, match=r"not within 30 s; pods without a node: default/bad \(.*bad name.*\)"):
        cluster.play(story)

    assert cluster.clock.monotonic() == pytest.approx(30.0, abs=1.0)


def test_until_says_how_long_it_took(cluster: SimulatedCluster) -> None:
    async def story() -> float:
        kubelet = Kubelet(cluster.server, cluster.clock, start_seconds=5.0)
        async with cluster.scheduling(PROFILE, plugins=[Picky]), running(kubelet.run()):
            return await cluster.until(lambda: cluster.get(PODS, "good").status.phase == "Running")

    assert cluster.play(story) == pytest.approx(5.0, abs=0.5)


def test_a_condition_is_looked_at_when_something_has_happened(cluster: SimulatedCluster) -> None:
    looks, happened = [], asyncio.Event()

    def look() -> bool:
        looks.append(cluster.clock.monotonic())
        return happened.is_set()

    async def story() -> float:
        asyncio.get_running_loop().call_later(1000.01, happened.set)
        return await cluster.until(look, seconds=2000.0)

    assert cluster.play(story) == pytest.approx(1000.05)
    assert looks == pytest.approx([0.0, 0.05, 1000.05])


def test_a_story_is_the_same_again_though_requests_fail() -> None:
    def played() -> list[tuple[float, str]]:
        cluster = SimulatedCluster()
        cluster.create(NODES, make_node("a"))
        cluster.create(PODS, make_pod("good", gpus=1))
        failed: list[tuple[float, str]] = []

        def refuse(verb: str, resource: Resource[Any], name: str) -> Exception | None:
            if (verb == "bind" or (verb, resource) == ("list", NODES)) and cluster.clock.monotonic() < 60.0:
                failed.append((cluster.clock.monotonic(), verb))
                return Unavailable(503, "ServiceUnavailable", "no") if len(failed) % 5 else None
            return None

        async def story() -> None:
            client = SimulatedClient(cluster.server, faults=refuse)
            async with cluster.scheduling(PROFILE, client, plugins=[Picky]):
                await cluster.until(lambda: bool(cluster.bound()))

        cluster.play(story)
        return failed

    first, second = played(), played()

    assert {verb for _, verb in first} == {"bind", "list"}
    assert first == second


def test_a_scheduler_ends_with_its_block(cluster: SimulatedCluster) -> None:
    async def story() -> None:
        async with cluster.scheduling(PROFILE, plugins=[Picky]):
            await cluster.until(lambda: bool(cluster.bound()))
        cluster.create(PODS, make_pod("late", gpus=1))
        with pytest.raises(TimeoutError, match=r"default/late \(no reason yet\)"):
            await cluster.until(lambda: "late" in cluster.bound())

    cluster.play(story)


def test_what_a_part_raises_ends_the_story(cluster: SimulatedCluster) -> None:
    async def broken() -> None:
        raise RuntimeError("out of order")

    async def story() -> None:
        async with running(broken()):
            await cluster.until(lambda: False)

    with pytest.raises(RuntimeError, match="out of order"):
        cluster.play(story)


def test_until_for_ever_ends_when_nothing_can_happen_any_more(cluster: SimulatedCluster) -> None:
    async def story() -> None:
        await cluster.until(lambda: False, math.inf)

    with pytest.raises(TimeoutError, match="nothing can happen any more"):
        cluster.play(story)
