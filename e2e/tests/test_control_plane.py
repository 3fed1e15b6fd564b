"""The control plane that every end-to-end test stands on does what those tests rely on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gangline_e2e.api import Api, connect
from gangline_e2e.errors import Refused, StartFailed, WaitedTooLong
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.workloads import (
    Manifest,
    gpu_pod,
    is_bound,
    is_ready,
    is_running,
    is_succeeded,
    job,
    kwok_node,
)

StartControlPlane = Callable[[Options], ControlPlane]
NODES = "/api/v1/nodes"

pytestmark = pytest.mark.timeout(300)


async def test_kwok_nodes_become_ready_with_their_resources_and_without_taints(
    cluster: Api,
) -> None:
    names = {f"ready-{index:02}" for index in range(50)}
    await cluster.create_many(kwok_node(name) for name in sorted(names))

    ready = await cluster.wait_for(NODES, lambda node: _is_one_of(names, node) and is_ready(node), 50)

    assert {node["metadata"]["name"] for node in ready} == names
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in ready} == {"8"}
    assert not any(node["spec"].get("taints") for node in ready)


async def test_a_pod_bound_by_hand_runs_and_keeps_its_binding_annotation(cluster: Api) -> None:
    await cluster.create(kwok_node("bind-0"))
    await cluster.create(gpu_pod("worker", gpus=2))
    binding = {"metadata": {"name": "worker", "annotations": {"example.com/gpus": "0,1"}}}
    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "bind-0"}}
    await cluster.request("POST", f"{cluster.pods}/worker/binding", {**binding, **target})

    (pod,) = await cluster.wait_for(cluster.pods, is_running, 1)

    assert pod["spec"]["nodeName"] == "bind-0"
    assert pod["metadata"]["annotations"]["example.com/gpus"] == "0,1"
    types = {condition["type"] for condition in pod["status"]["conditions"]}
    assert types >= {"PodScheduled", "Ready"}


async def test_a_pod_that_no_scheduler_takes_stays_unbound(cluster: Api) -> None:
    await cluster.create(kwok_node("idle-0"))
    await cluster.create(gpu_pod("waiting", scheduler_name="nobody"))

    with pytest.raises(WaitedTooLong, match=r"1 objects, 0 came"):
        await cluster.wait_for(cluster.pods, is_bound, 1, timeout_s=1)


async def test_a_pod_succeeds_after_the_time_in_its_annotation(cluster: Api) -> None:
    await cluster.create(kwok_node("finish-0"))
    await cluster.create(gpu_pod("short", annotations={"gangline.dev/completes-after": "500ms"}))
    await cluster.bind("short", "finish-0")

    (pod,) = await cluster.wait_for(cluster.pods, is_succeeded, 1)

    state = pod["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["reason"] == "Completed"


async def test_a_deleted_pod_goes_without_being_forced(cluster: Api) -> None:
    await cluster.create(kwok_node("delete-0"))
    await cluster.create(gpu_pod("leaving"))
    await cluster.bind("leaving", "delete-0")
    await cluster.wait_for(cluster.pods, is_running, 1)
    await cluster.delete(f"{cluster.pods}/leaving")

    async def gone() -> bool:
        return not await cluster.list(cluster.pods)

    assert await cluster.until(gone, "the pod is gone")


async def test_a_deleted_pod_stays_for_the_time_in_its_annotation(cluster: Api) -> None:
    await cluster.create(kwok_node("linger-0"))
    await cluster.create(gpu_pod("slow", annotations={"gangline.dev/ends-after": "1h"}))
    await cluster.bind("slow", "linger-0")
    await cluster.wait_for(cluster.pods, is_running, 1)
    await cluster.delete(f"{cluster.pods}/slow")

    async def gone() -> bool:
        return not await cluster.list(cluster.pods)

    with pytest.raises(WaitedTooLong):
        await cluster.until(gone, "the pod is gone", timeout_s=1)
    assert (await cluster.get(f"{cluster.pods}/slow"))["metadata"]["deletionTimestamp"]


async def test_a_test_leaves_nothing_behind(start_control_plane: StartControlPlane) -> None:
    control_plane = start_control_plane(Options())
    async with isolated(control_plane) as api:
        namespace = api.namespace
        await api.create_many([kwok_node("mine-0"), gpu_pod("mine"), _protected_claim()])
        await api.bind("mine", "mine-0")
        await api.wait_for(api.pods, is_running, 1)

    async with connect(control_plane.kubeconfig, namespace) as api:
        assert await api.list("/api/v1/pods") == []
        assert await api.list("/apis/resource.k8s.io/v1/resourceclaims") == []
        assert await api.list(NODES) == []
        with pytest.raises(Refused, match="404"):
            await api.get(f"/api/v1/namespaces/{namespace}")


async def test_a_killed_api_server_comes_back_with_its_objects(
    start_control_plane: StartControlPlane,
) -> None:
    control_plane = start_control_plane(Options(kwok=False))
    async with connect(control_plane.kubeconfig) as api:
        await api.create_many(kwok_node(f"kept-{index}") for index in range(20))
        before = {node["metadata"]["uid"] for node in await api.list(NODES)}
    first = control_plane.processes["kube-apiserver"]

    first.signal(signal.SIGKILL)
    assert first.wait(10)
    control_plane.restart_apiserver()

    async with connect(control_plane.kubeconfig) as api:
        after = {node["metadata"]["uid"] for node in await api.list(NODES)}
    assert len(before) == 20
    assert after == before
    assert control_plane.processes["kube-apiserver"].pid != first.pid


async def test_a_user_without_rights_is_refused(start_control_plane: StartControlPlane) -> None:
    control_plane = start_control_plane(Options(kwok=False))
    nobody = control_plane.kubeconfig_for("nobody", ("unknown-group",))

    async with connect(nobody) as api:
        with pytest.raises(Refused, match='User "nobody" cannot list') as refused:
            await api.list(NODES)

    assert refused.value.status == 403


def test_a_start_that_fails_halfway_shows_the_log_and_stops_what_it_started(
    tmp_path: Path, start_control_plane: StartControlPlane
) -> None:
    broken = ControlPlane(tmp_path / "broken", Options(apiserver_args=("--no-such-flag",)))

    with pytest.raises(StartFailed, match=r"kube-apiserver: ended.*\n.*unknown flag: --no-such-flag"):
        broken.start()

    assert broken.logs("etcd")
    assert broken.processes == {}


async def test_the_controllers_turn_a_job_into_pods_that_a_scheduler_binds(
    start_control_plane: StartControlPlane,
) -> None:
    control_plane = start_control_plane(Options(controller_manager=True))
    scheduler = control_plane.start_scheduler()
    async with isolated(control_plane) as api:
        await api.create(kwok_node("job-0"))
        await api.create(job("training", gpu_pod("any", gpus=4), parallelism=2))
        pods = await api.wait_for(api.pods, is_running, 2)

    assert {pod["spec"]["nodeName"] for pod in pods} == {"job-0"}
    assert scheduler.usage().cpu_s > 0


def _protected_claim() -> Manifest:
    """A ResourceClaim with a finalizer, as one that has devices."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    metadata = {"name": "kept", "finalizers": ["resource.kubernetes.io/delete-protection"]}
    spec = {"devices": {"requests": [request]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def _is_one_of(names: set[str], item: dict[str, dict[str, str]]) -> bool:
    return item["metadata"]["name"] in names
