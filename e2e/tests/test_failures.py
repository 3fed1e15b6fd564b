"""When the API server or the scheduler dies in the middle of the work, nothing is lost and nothing done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.placements import faults
from gangline_e2e.refusing import refuse_to_bind
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, Manifests, gpu_pod, is_bound, kwok_node

NODES = "/api/v1/nodes"
OURS = "gangline"
CONFIG = configuration(profile(OURS))

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]
StartControlPlane = Callable[[Options], ControlPlane]


async def test_a_killed_api_server_costs_no_pod_and_no_restart(
    start_control_plane: StartControlPlane, start_gangline: StartGangline
) -> None:
    control_plane = start_control_plane(Options())
    async with isolated(control_plane) as api:
        await _create_work(api, nodes=130, pods=1000)
        scheduler = start_gangline(control_plane.kubeconfig, CONFIG)
        pid = scheduler.process.pid
        early = await api.wait_for(api.pods, is_bound, 100)
        await asyncio.to_thread(control_plane.kill, "kube-apiserver")
        await asyncio.to_thread(control_plane.restart_apiserver)
        before = _nodes_by_uid(early)

        pods = await api.wait_for(api.pods, is_bound, 1000, timeout_s=120)
        await api.create_many(gpu_pod(f"late-{i}", scheduler_name=OURS) for i in range(20))
        pods = await api.wait_for(api.pods, is_bound, 1020)

        assert faults(pods, await api.list(NODES)) == []
        assert before.items() <= _nodes_by_uid(pods).items()
        assert [pod["metadata"]["name"] for pod in pods if _is_said_to_wait(pod)] == []
        assert "cannot follow pods" in scheduler.logs()
        assert scheduler.alive()
        assert scheduler.process.pid == pid


async def test_a_killed_scheduler_goes_on_where_it_was_when_it_starts_again(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await _create_work(empty, nodes=65, pods=500)
    guard = await refuse_to_bind(empty, "work-[0-9]*[02468]")
    scheduler = start_gangline(own_control_plane.kubeconfig, CONFIG)
    early = await empty.wait_for(empty.pods, is_bound, 50)
    scheduler.kill()
    at_death = [pod for pod in await empty.list(empty.pods) if is_bound(pod)]
    await empty.delete(guard)

    scheduler.start()
    pods = await empty.wait_for(empty.pods, is_bound, 500)

    assert len(early) <= len(at_death) <= 250
    assert faults(pods, await empty.list(NODES)) == []
    assert _nodes_by_uid(at_death).items() <= _nodes_by_uid(pods).items()


async def _create_work(api: Api, nodes: int, pods: int) -> None:
    """Nodes with 8 GPUs, and pods with one each that nearly fill them."""
    await api.create_many(kwok_node(f"node-{i}") for i in range(nodes))
    await api.create_many(gpu_pod(f"work-{i}", scheduler_name=OURS) for i in range(pods))


def _nodes_by_uid(pods: Manifests) -> dict[str, str]:
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}


def _is_said_to_wait(pod: Manifest) -> bool:
    """Whether the PodScheduled condition says that a pod has no node."""
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)
