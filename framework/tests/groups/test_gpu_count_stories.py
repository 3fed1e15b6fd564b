"""Unindexed Jobs that say how many GPUs they take in all: gangs from their first pod to their last."""

from __future__ import annotations

from typing import Any

from gangline.kube.resources import JOBS, PODS
from gangline.simulate import RUN_SECONDS, Kubelet, Workloads, running
from gangline.testing.gang_stories import GangCluster

GPU_COUNT = "topology.scheduler/gpu-count"


def job(name: str, run: str = "", **spec: Any) -> dict[str, Any]:
    """A Job of pods that want a node each: four at once, 32 GPUs."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {
        "metadata": {"annotations": {RUN_SECONDS: run} if run else {}},
        "spec": {"schedulerName": "gangs", "restartPolicy": "Never", "containers": [container]},
    }
    metadata = {"name": name, "namespace": "default", "annotations": {GPU_COUNT: "32"}}
    whole = {"parallelism": 4, "completions": 4, "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": whole}


def succeeded(cluster: GangCluster, name: str) -> int:
    status: dict[str, int] = cluster.server.get(JOBS, name, namespace="default").data.get("status", {})
    return status.get("succeeded", 0)


def parts(cluster: GangCluster) -> tuple[Any, Any]:
    """What runs beside the scheduler: the nodes, and the controller of the Jobs."""
    return Kubelet(cluster.server, cluster.clock).run(), Workloads(cluster.server).run()


def test_its_pods_start_together_or_not_at_all() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_gang("first", 2)

    async def story() -> None:
        async with running(*parts(cluster)), cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("first")) == 2)
            cluster.server.apply_manifest(job("train"))
            await cluster.until(lambda: any("gang default/train" in note for note in cluster.notes()))
            assert not cluster.bound("train")
            for number in range(2):
                cluster.server.delete(PODS, f"first-{number}", grace_period_seconds=0)
            await cluster.until(lambda: len(cluster.bound("train")) == 4)

    cluster.play(story)


def test_more_completions_than_pods_at_once_all_run_also_those_that_are_left_at_the_end() -> None:
    cluster = GangCluster(leaves=1)
    cluster.server.apply_manifest(job("train", run="20", completions=6))

    async def story() -> None:
        async with running(*parts(cluster)), cluster.scheduler():
            await cluster.until(lambda: succeeded(cluster, "train") == 6, seconds=120)

    cluster.play(story)


def test_a_pod_that_fails_is_replaced_beside_those_that_run_and_beside_none() -> None:
    cluster = GangCluster(leaves=1)
    cluster.server.apply_manifest(job("train"))

    def end(pod: str, phase: str) -> None:
        found = cluster.server.get(PODS, pod, namespace="default").data
        cluster.server.replace(PODS, {**found, "status": {**found["status"], "phase": phase}}, subresource="status")

    def running_pods() -> set[str]:
        return {pod.metadata.name for pod in cluster.list(PODS) if pod.status.phase == "Running"}

    async def story() -> None:
        async with running(*parts(cluster)), cluster.scheduler():
            await cluster.until(lambda: len(running_pods()) == 4)
            first, *others = sorted(running_pods())
            end(first, "Failed")
            await cluster.until(lambda: len(running_pods()) == 4)
            (second,) = running_pods() - {*others}
            for pod in others:
                end(pod, "Succeeded")
            end(second, "Failed")
            await cluster.until(lambda: len(running_pods()) == 1)

    cluster.play(story)
