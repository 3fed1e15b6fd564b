"""The stand-in kubelet and the controllers of workloads, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gangline.errors import NotFound
from gangline.kube.resources import JOBS, NODES, PODS
from gangline.simulate import RUN_SECONDS, InMemoryServer, Kubelet, SimulatedClient, VirtualClock, Workloads, gpu_nodes

from .stories import in_virtual_time, node, pod


@asynccontextmanager
async def running(*parts: Kubelet | Workloads) -> AsyncIterator[None]:
    """Runs parts of the simulation while the block lasts."""
    tasks = [asyncio.create_task(part.run()) for part in parts]
    yield
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome


def finite(name: str, seconds: str) -> dict[str, Any]:
    return {**pod(name), "metadata": {"name": name, "annotations": {RUN_SECONDS: seconds}}}


def phases(server: InMemoryServer) -> list[str]:
    return [each.data["status"]["phase"] for each in server.list(PODS)]


@in_virtual_time
async def test_a_bound_pod_starts_runs_and_succeeds(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(node("n"))
    server.apply_manifest(finite("a", "60"))
    async with running(Kubelet(server, clock, start_seconds=2)):
        await asyncio.sleep(10)
        assert phases(server) == ["Pending"]

        server.bind("default", "a", "", "n", {})
        await asyncio.sleep(1.9)
        assert phases(server) == ["Pending"]
        await asyncio.sleep(0.2)
        status = server.get(PODS, "a").data["status"]
        assert (status["phase"], status["startTime"]) == ("Running", "2026-01-01T00:00:12Z")
        assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
        await asyncio.sleep(60)

        assert phases(server) == ["Succeeded"]


@in_virtual_time
async def test_a_pod_that_runs_already_keeps_its_end(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(node("n"))
    status = {"phase": "Running", "startTime": "2025-12-31T23:59:30Z"}
    server.apply_manifest({**finite("a", "40"), "spec": {"nodeName": "n"}, "status": status})

    async with running(Kubelet(server, clock)):
        await asyncio.sleep(9)
        assert phases(server) == ["Running"]
        await asyncio.sleep(2)
        assert phases(server) == ["Succeeded"]


@in_virtual_time
async def test_a_pod_that_somebody_has_ended_does_not_start(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(node("n"))
    server.apply_manifest(finite("a", "5"))
    async with running(Kubelet(server, clock, start_seconds=2)):
        server.bind("default", "a", "", "n", {})
        await asyncio.sleep(1)

        server.patch(PODS, "a", {"status": {"phase": "Failed"}}, subresource="status")
        await asyncio.sleep(20)

        assert phases(server) == ["Failed"]


@in_virtual_time
async def test_a_deleted_pod_vanishes_soon_and_does_not_run_on(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(node("n"))
    server.apply_manifest({**finite("a", "60"), "spec": {"nodeName": "n"}})
    async with running(Kubelet(server, clock, stop_seconds=3)):
        await asyncio.sleep(5)

        server.delete(PODS, "a")
        await asyncio.sleep(2.9)
        assert "deletionTimestamp" in server.get(PODS, "a").data["metadata"]
        await asyncio.sleep(0.2)

        with pytest.raises(NotFound):
            server.get(PODS, "a")
        await asyncio.sleep(100)
        assert server.list(PODS) == []


@in_virtual_time
async def test_a_pod_made_again_under_its_name_is_another_pod(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(node("n"))
    server.apply_manifest({**finite("a", "10"), "spec": {"nodeName": "n"}})
    async with running(Kubelet(server, clock)):
        await asyncio.sleep(5)

        server.delete(PODS, "a", grace_period_seconds=0)
        server.apply_manifest(pod("a"))
        await asyncio.sleep(100)

        assert phases(server) == ["Pending"]


@in_virtual_time
async def test_a_pod_on_a_node_that_does_not_exist_does_not_start(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(pod("a", nodeName="gone"))

    async with running(Kubelet(server, clock)):
        await asyncio.sleep(100)

        assert phases(server) == ["Pending"]


@in_virtual_time
async def test_an_annotation_that_is_no_number_fails_the_pod(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(node("n"))
    server.create(PODS, {**finite("a", "soon"), "spec": {"nodeName": "n"}})

    async with running(Kubelet(server, clock)):
        await asyncio.sleep(2)

        status = server.get(PODS, "a").data["status"]
        assert status["phase"] == "Failed"
        assert status["message"] == "metadata.annotations[gangline.dev/run-seconds]: 'soon': not a number of seconds"


@in_virtual_time
async def test_nodes_become_ready_unless_they_say_that_they_are_not(
    clock: VirtualClock, server: InMemoryServer
) -> None:
    broken = node("broken")
    broken["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    server.apply_manifest(broken)
    async with running(Kubelet(server, clock)):
        server.apply_manifest(node("n"))
        await asyncio.sleep(1)

        conditions = [each.data["status"]["conditions"][0] for each in server.list(NODES)]
        assert [each["status"] for each in conditions] == ["False", "True"]


@in_virtual_time
async def test_neither_a_lost_connection_nor_a_short_history_loses_a_pod(clock: VirtualClock) -> None:
    server = InMemoryServer(clock, history=2)
    server.apply_manifest(node("n"))
    server.apply_manifest(pod("old", nodeName="n"))
    async with running(Kubelet(server, clock)):
        await asyncio.sleep(5)

        server.disconnect()
        server.delete(PODS, "old", grace_period_seconds=0)
        for number in range(20):
            server.apply_manifest(pod(f"p{number}", nodeName="n"))
        await asyncio.sleep(5)

        assert phases(server) == ["Running"] * 20


@in_virtual_time
async def test_a_job_runs_all_its_completions(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(node("n"))
    template = {"metadata": {"annotations": {RUN_SECONDS: "10"}}, "spec": {"nodeName": "n"}}
    spec = {"parallelism": 2, "completions": 5, "completionMode": "Indexed", "template": template}
    server.apply_manifest({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec})
    assert len(server.list(PODS)) == 2

    async with running(Kubelet(server, clock), Workloads(server)):
        await asyncio.sleep(12)
        assert sorted(phases(server)) == ["Pending", "Pending", "Succeeded", "Succeeded"]
        await asyncio.sleep(100)

    assert phases(server) == ["Succeeded"] * 5
    indexes = [
        each.data["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for each in server.list(PODS)
    ]
    assert sorted(indexes) == ["0", "1", "2", "3", "4"]
    assert server.get(JOBS, "train", namespace="default").data["status"]["succeeded"] == 5


@in_virtual_time
async def test_a_deleted_replica_is_made_again(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}
    server.apply_manifest({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec})
    before = {each.metadata.name for each in (await client.list(PODS)).items}

    async with running(Workloads(server)):
        await asyncio.sleep(1)
        await client.delete(PODS, min(before))
        await asyncio.sleep(1)

    after = {each.metadata.name for each in (await client.list(PODS)).items}
    assert len(after) == 2
    assert len(before & after) == 1


def test_gpu_nodes_are_spread_over_domains(server: InMemoryServer) -> None:
    for manifest in gpu_nodes(
        80, gpus=4, labels={"pool": "x"}, domains={"example.com/spine": 64, "example.com/leaf": 8}
    ):
        assert server.apply_manifest(manifest) == []

    labels = server.get(NODES, "gpu-00070").data["metadata"]["labels"]
    assert labels == {
        "kubernetes.io/hostname": "gpu-00070",
        "pool": "x",
        "example.com/spine": "spine-1",
        "example.com/leaf": "leaf-8",
    }
    assert server.get(NODES, "gpu-00000").data["status"]["allocatable"]["nvidia.com/gpu"] == "4"


@in_virtual_time
async def test_pods_on_a_node_that_is_not_heard_of_do_not_end_until_it_is(
    clock: VirtualClock, server: InMemoryServer
) -> None:
    server.apply_manifest(node("n"))
    server.apply_manifest(pod("a"))
    async with running(Kubelet(server, clock)):
        server.bind("default", "a", "", "n", {})
        await asyncio.sleep(5)
        server.patch(
            NODES, "n", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, subresource="status"
        )
        server.delete(PODS, "a", namespace="default")
        await asyncio.sleep(600)
        assert "deletionTimestamp" in server.get(PODS, "a").data["metadata"]

        server.patch(
            NODES, "n", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status"
        )
        await asyncio.sleep(5)

        with pytest.raises(NotFound):
            server.get(PODS, "a")
