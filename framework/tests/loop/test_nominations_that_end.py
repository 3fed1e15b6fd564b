"""A pod that is bound to another node than the one it was nominated for: others get the room that was kept for it."""

from __future__ import annotations

import pytest

from gangline.kube.resources import NODES, PODS
from gangline.simulate import SimulatedCluster
from gangline.testing import make_node, make_pod

from .test_gangs_alike import NAME, GangWorld

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
"""


@pytest.mark.parametrize("is_bound_by_us", [True, False], ids=["bound by us", "bound by somebody else"])
def test_room_that_was_kept_for_a_pod_on_another_node_helps_others(is_bound_by_us: bool) -> None:
    """No other event helps the pod that waits: node b has no GPU, and the victim goes on for minutes."""
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a", cpu=4, gpus=1))
    cluster.create(PODS, make_pod("running", cpu=2, node="a", termination_grace_period_seconds=600))
    first = make_pod("first", cpu=3, priority=100)
    first.status.nominated_node_name = "a"
    cluster.create(PODS, first, make_pod("second", cpu=2, gpus=1))

    async def story() -> None:
        async with cluster.scheduling(PROFILE):
            await cluster.until(lambda: bool(cluster.message("first") and cluster.message("second")))
            if is_bound_by_us:
                cluster.create(NODES, make_node("b", gpus=0, cpu=3))
            else:
                cluster.create(NODES, make_node("b", gpus=0, cpu=1))
                cluster.server.bind("default", "first", "", "b", {})
            await cluster.until(lambda: set(cluster.bound()) == {"first", "second"}, 30.0)

    cluster.play(story)

    assert cluster.bound() == {"first": "b", "second": "a"}


@pytest.mark.parametrize("places", [[], ["n-1"]], ids=["given up", "on another node"])
def test_room_that_was_kept_for_a_pod_to_come_helps_others(places: list[str]) -> None:
    world = GangWorld()
    world.node("n-0", 0)
    handle = world.scheduler.runtimes[NAME].handle
    to_come = world.cluster.cache.record(make_pod("gone", cpu=4, scheduler_name=NAME)).anew()
    handle.expect("default/recovering", [(to_come, "n-0")])
    world.play(("gangs", 7, 1))
    world.settle()
    assert not world.bound

    handle.expect("default/recovering", [(to_come, node) for node in places])
    world.settle()

    assert world.places() == {"g-001-0": "n-0"}


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written yet"])
def test_room_that_a_plugin_made_helps_others_when_somebody_else_names_another_node(is_written: bool) -> None:
    world = GangWorld()
    world.node("n-0", 0)
    world.play(("gangs", 0, 1))  # needs two nodes
    if is_written:
        world.play(("nominated", 0, "n-0"))
    else:
        (unit,) = world.scheduler.queue
        world.scheduler.queue.nominations.nominate(unit.pod, "n-0")
    world.play(("gangs", 7, 1))
    world.settle()
    assert not world.bound

    world.play(("nominated", 0, "n-9"))
    world.settle()

    assert world.places() == {"g-002-0": "n-0"}
