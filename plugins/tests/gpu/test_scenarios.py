"""Whole scheduler, simulated API server: claims from their creation to bound pods with devices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from gangline import custom_resources, resources
from gangline.model import Pod
from gangline.simulate import InMemoryServer, Options, SimulatedClient, VirtualClock, make_scheduler, run

from .gpu_cases import claim, report

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: gpu
    plugins:
      multiPoint:
        enabled:
          - name: GpuClaim
          - name: NVLinkTopology
"""


class Cluster:
    """An API server, a client, and a scheduler that can be started again."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = InMemoryServer(clock)
        self.client = SimulatedClient(self.server, latency={"bind": 0.002})
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """A new scheduler with an empty memory."""
        scheduler = make_scheduler(PROFILE, self.client, self.clock, options=Options(seed=1))
        self._task = asyncio.create_task(scheduler.run())

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def create(self, *objects: custom_resources.GpuClaim | custom_resources.GpuNodeStatus) -> None:
        for obj in objects:
            self.server.apply_manifest(msgspec.to_builtins(obj) | {"apiVersion": obj.api_version, "kind": obj.kind})

    def node(self, name: str, gpus: int = 8) -> None:
        amounts = {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
        status = {"allocatable": amounts, "capacity": amounts}
        self.server.apply_manifest({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})

    def pod(self, name: str, uses: str = "", gpus: int = 0, allocated: str = "") -> None:
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        notes = {
            key: value
            for key, value in ((custom_resources.CLAIM, uses), (custom_resources.ALLOCATED, allocated))
            if value
        }
        spec = {"schedulerName": "gpu", "containers": [{"name": "main", "image": "x", "resources": limits}]}
        meta = {"name": name, "namespace": "default", "annotations": notes}
        self.server.apply_manifest({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    async def pods(self) -> dict[str, Pod]:
        return {pod.metadata.name: pod for pod in (await self.client.list(resources.PODS)).items}

    async def devices(self) -> Counter[tuple[str, str]]:
        """How many pods have each device."""
        return Counter(
            (pod.spec.node_name, id)
            for pod in (await self.pods()).values()
            if pod.spec.node_name
            for id in (pod.metadata.annotations or {})[custom_resources.ALLOCATED].split(",")
        )


def play(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    clock = VirtualClock()

    async def whole() -> None:
        cluster = Cluster(clock)
        cluster.start()
        try:
            await story(cluster)
        finally:
            await cluster.stop()

    run(whole(), clock)


def test_claims_are_met_until_the_cluster_is_full_and_no_device_is_given_twice() -> None:
    async def story(cluster: Cluster) -> None:
        for name in ("a", "b"):
            cluster.node(name)
            cluster.create(report(name))
        cluster.create(claim("two", count=2), claim("one"))
        for n in range(5):
            cluster.pod(f"two-{n}", "two")
            cluster.pod(f"one-{n}", "one")
            cluster.pod(f"plain-{n}", gpus=1)
        await asyncio.sleep(5)

        found = await cluster.devices()
        assert set(found.values()) == {1}
        assert len(found) == 16

    play(story)


def test_a_restart_gives_no_device_a_second_time_and_freed_ones_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.node("a", 4)
        cluster.create(report("a", "pcie-4"), claim("two", count=2))
        cluster.pod("first", "two")
        await asyncio.sleep(1)
        await cluster.stop()
        cluster.start()
        cluster.pod("second", "two")
        cluster.pod("third", "two")
        await asyncio.sleep(3)

        pods = await cluster.pods()
        taken = {name: (pod.metadata.annotations or {}).get(custom_resources.ALLOCATED) for name, pod in pods.items()}
        assert sorted(str(ids) for ids in taken.values()) == ["0,1", "2,3", "None"]
        await cluster.client.delete(resources.PODS, "first", namespace="default", grace_period_seconds=0)
        await asyncio.sleep(15)
        assert set((await cluster.devices()).values()) == {1}
        assert all(pod.spec.node_name for pod in (await cluster.pods()).values())

    play(story)


def test_a_pod_waits_for_its_claim_and_for_devices_and_the_claim_tells() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.node("a")
        cluster.pod("p", "late")
        await asyncio.sleep(2)
        cluster.create(claim("late", count=2))
        await asyncio.sleep(2)
        before = (await cluster.pods())["p"].spec.node_name
        cluster.create(report("a"))
        await asyncio.sleep(15)

        status = (await cluster.client.get(resources.GPU_CLAIMS, "late", namespace="default")).status
        assert before == ""
        assert (status.phase, status.node_name, status.gpu_ids, status.allocated) == ("Bound", "a", [0, 1], "a:0,1")

    play(story)


def test_an_allocation_that_a_user_made_up_is_replaced() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.node("a")
        cluster.create(report("a"), claim("one"))
        cluster.pod("p", "one", allocated="7")
        await asyncio.sleep(1)

        assert await cluster.devices() == {("a", "0"): 1}

    play(story)
