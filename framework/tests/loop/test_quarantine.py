"""One bad object harms only itself: the scheduler lives, a healthy pod is bound, and the object says what is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from gangline import PodInfo, Status, config, hookimpl
from gangline.errors import NotFound
from gangline.kube.resources import GPU_NODE_STATUSES, LEASES, NODES, PODS, Resource, Selection
from gangline.simulate import SimulatedCluster
from gangline.testing import make_node, make_pod

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled:
      - {name: NodeVolumeLimits}
      - {name: GpuClaim}
      - {name: DeviceLease}
      - {name: NVLinkTopology}
      - {name: GpuSchedulingMap}
      - {name: LeafSpine}
      - {name: TopologyAnnotations}
      - {name: GangPermit}
      - {name: TopologyPlacement}
"""


def pod(name: str = "bad", node: str = "", **spec: Any) -> dict[str, Any]:
    containers = spec.pop("containers", [{"name": "c", "resources": {"requests": spec.pop("requests", {})}}])
    metadata = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
    whole = {"schedulerName": "default-scheduler", "containers": containers, **({"nodeName": node} if node else {})}
    return {"metadata": metadata, "spec": {**whole, **spec}}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"f:a": value}
    return value


def play(*bad: tuple[Resource[Any], Mapping[str, Any]]) -> SimulatedCluster:
    """A healthy pod is bound though these objects are there; then they go, and another healthy pod is bound."""
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n", cpu=8, gpus=8), make_node("m", cpu=8, gpus=8))
    for resource, data in bad:
        cluster.server.create(resource, data)

    async def story() -> None:
        async with cluster.scheduling(PROFILE):
            cluster.create(PODS, make_pod("healthy", cpu=1, scheduler_name="default-scheduler"))
            await cluster.until(lambda: "healthy" in cluster.bound())
            for resource, data in bad:
                with suppress(NotFound):  # a lease of no use is taken away by the scheduler
                    cluster.server.delete(
                        resource, data["metadata"]["name"], namespace=data["metadata"].get("namespace")
                    )
            cluster.create(PODS, make_pod("after", cpu=1, scheduler_name="default-scheduler"))
            await cluster.until(lambda: "after" in cluster.bound())

    cluster.play(story)
    return cluster


BAD_PODS = {
    "a volume that is no URL": pod(node="n", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "//["}}]),
    "a quantity of very many digits": pod(requests={"cpu": "9" * 5000}),
    "the same on a node": pod(node="n", requests={"cpu": "9" * 5000, "memory": "1Gi"}),
    "the same of another scheduler": pod(schedulerName="other", requests={"cpu": "9" * 5000}),
    "deep managed fields": pod(metadata={"managedFields": [{"fieldsV1": deep(900)}]}),
    "a deep annotation": pod(
        metadata={
            "annotations": {
                "gang.scheduling.koordinator.sh/name": "g",
                "gang.scheduling.koordinator.sh/min-available": "1",
                "gang.scheduling.koordinator.sh/network-topology-spec": '{"gatherStrategy":'
                + "[" * 3000
                + "]" * 3000
                + "}",
            }
        }
    ),
    "more GPUs than there are numbers": pod(node="n", requests={"nvidia.com/gpu": str(2**52)}),
    "an allocation of very many digits": pod(
        node="n",
        requests={"nvidia.com/gpu": "1"},
        metadata={"annotations": {"gpu.scheduling/allocated": "9" * 5000}},
    ),
    "ten thousand resources": pod(node="n", requests={f"example.com/r{i}": "1" for i in range(10_000)}),
    "ten thousand keys": pod(nodeSelector={f"k{i}": "v" for i in range(10_000)}),
    "five thousand images": pod(containers=[{"name": f"c{i}", "image": f"i{i}"} for i in range(5_000)]),
}


@pytest.mark.parametrize("what", BAD_PODS)
def test_a_pod_harms_no_other(what: str) -> None:
    play((PODS, BAD_PODS[what]))


def test_a_report_of_more_ports_than_there_are_numbers_harms_no_other() -> None:
    hcas = [{"name": f"mlx5_{i}", "ports": 2_000_000_000} for i in range(2)]
    play((GPU_NODE_STATUSES, {"metadata": {"name": "n"}, "status": {"fabric": {"hcas": hcas}}}))


def test_a_lease_of_devices_that_no_node_has_harms_no_other() -> None:
    holders = {"u": {"pod": "default/p", "by": "x.1", "ids": [-1]}}
    annotations = {"gpu.scheduling/node": "n", "gpu.scheduling/holders": json.dumps(holders)}
    labels = {"gpu.scheduling/managed": "true"}
    metadata = {"name": "gpu-n", "namespace": "kube-system", "annotations": annotations, "labels": labels}
    play((LEASES, {"metadata": metadata, "spec": {}}))


def test_a_pod_that_is_set_aside_says_why() -> None:
    cluster = play((PODS, BAD_PODS["ten thousand keys"]))

    assert cluster.notes("bad") == ["spec.nodeSelector: 10000 entries, and at most 256 are read"]


def test_a_running_pod_that_is_set_aside_takes_what_can_be_read() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n", cpu=8, memory="8Gi"))
    cluster.server.create(PODS, pod(node="n", requests={"cpu": "9" * 5000, "memory": "6Gi"}))
    found: list[int] = []

    async def story() -> None:
        async with cluster.scheduling(PROFILE) as scheduler:
            cluster.create(PODS, make_pod("small", memory="2Gi", scheduler_name="default-scheduler"))
            cluster.create(PODS, make_pod("large", memory="3Gi", scheduler_name="default-scheduler"))
            await cluster.until(lambda: "small" in cluster.bound() and "Insufficient" in cluster.message("large"))
            found.append(int(scheduler.metrics.set_aside.labels("pods")._value.get()))
            cluster.server.delete(PODS, "bad", namespace="default", grace_period_seconds=0)
            await cluster.until(lambda: "large" in cluster.bound())
            found.append(int(scheduler.metrics.set_aside.labels("pods")._value.get()))

    cluster.play(story)

    assert found == [1, 0]


class OneOfTwo:
    """Follows the leases of one of two namespaces."""

    name = "OneOfTwo"
    watches = (Selection(LEASES, "a"), Selection(LEASES, "b"))

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        return None


def test_all_that_is_set_aside_of_a_kind_is_counted_by_whichever_watch_it_comes() -> None:
    cluster = SimulatedCluster()
    for name, where in (("one", "a"), ("two", "b")):
        spec = {"leaseDurationSeconds": "x"}
        cluster.server.create(LEASES, {"metadata": {"name": name, "namespace": where}, "spec": spec})
    found: list[int] = []

    async def story() -> None:
        profile = PROFILE[: PROFILE.index("      - {name")] + "      - {name: OneOfTwo}\n"
        async with cluster.scheduling(profile, plugins=[OneOfTwo]) as scheduler:
            await cluster.until(lambda: bool(cluster.notes("one") and cluster.notes("two")))
            found.append(int(scheduler.metrics.set_aside.labels("leases")._value.get()))
            cluster.server.delete(LEASES, "two", namespace="b")
            await asyncio.sleep(1)
            found.append(int(scheduler.metrics.set_aside.labels("leases")._value.get()))
            scheduler.use(config.load(profile.replace("OneOfTwo", "GangPermit"), "test"))
            await asyncio.sleep(1)
            found.append(int(scheduler.metrics.set_aside.labels("leases")._value.get()))

    cluster.play(story)

    assert found == [2, 1, 0]


def test_a_pod_that_is_mended_is_looked_at_again() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n", cpu=8))
    cluster.server.create(PODS, pod(nodeSelector={f"k{i}": "v" for i in range(300)}))

    async def story() -> None:
        async with cluster.scheduling(PROFILE):
            await cluster.until(lambda: bool(cluster.notes("bad")))
            cluster.server.patch(PODS, "bad", {"spec": {"nodeSelector": None}}, namespace="default")
            await cluster.until(lambda: "bad" in cluster.bound())

    cluster.play(story)


def test_a_running_pod_that_was_never_readable_gives_its_room_back() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n", cpu=8))
    cluster.server.create(PODS, pod(node="n", requests={"cpu": "6"}, priority="high"))
    found: list[int] = []

    async def story() -> None:
        async with cluster.scheduling(PROFILE) as scheduler:
            cluster.create(PODS, make_pod("large", cpu=4, scheduler_name="default-scheduler"))
            await cluster.until(lambda: "Insufficient" in cluster.message("large"))
            found.append(int(scheduler.metrics.set_aside.labels("pods")._value.get()))
            cluster.server.delete(PODS, "bad", namespace="default", grace_period_seconds=0)
            await cluster.until(lambda: bool(cluster.get(PODS, "large").spec.node_name))
            found.append(int(scheduler.metrics.set_aside.labels("pods")._value.get()))

    cluster.play(story)

    assert found == [1, 0]


def test_a_pod_that_cannot_be_read_takes_its_room_when_it_gets_a_node() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n", cpu=8))
    cluster.server.create(PODS, pod(requests={"cpu": "6"}, priority="high"))

    async def story() -> None:
        async with cluster.scheduling(PROFILE):
            await cluster.until(lambda: bool(cluster.notes("bad")))
            cluster.server.patch(PODS, "bad", {"spec": {"nodeName": "n"}}, namespace="default")
            cluster.create(PODS, make_pod("large", cpu=4, scheduler_name="default-scheduler"))
            await cluster.until(
                lambda: "Insufficient" in cluster.message("large") or bool(cluster.get(PODS, "large").spec.node_name)
            )

    cluster.play(story)

    assert cluster.get(PODS, "large").spec.node_name == ""
