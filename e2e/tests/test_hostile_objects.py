"""One object that any tenant, node or stranger may create harms only itself, on the real API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gangline_e2e.api import Api
from gangline_e2e.gpu_crds import install
from gangline_e2e.gpu_fleet import SCHEDULER, configuration
from gangline_e2e.harness import ControlPlane
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import GPU, Manifest, gpu_pod, is_bound, kwok_node

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
ELSEWHERE = "/api/v1/namespaces/kube-public/pods"
SOON_S = 5.0
"""CPU time of the scheduler within which a healthy pod has to be bound beside any of these objects."""
MOST_MIB = 100
"""By which any of them may make the scheduler grow."""
KOORDINATOR = "gang.scheduling.koordinator.sh"

pytestmark = pytest.mark.timeout(400)
StartGangline = Callable[..., Gangline]


def pod(name: str, node: str = "", requests: dict[str, str] | None = None, **more: Any) -> Manifest:
    """A pod with just these requests, which are limits too where they have to be."""
    made = gpu_pod(name, gpus=0, scheduler_name=more.pop("scheduler_name", SCHEDULER))
    amounts = requests or {"cpu": "100m"}
    limits = {resource: amount for resource, amount in amounts.items() if "/" in resource}
    made["spec"]["containers"] = more.pop("containers", None) or [
        {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": limits}}
    ]
    made["metadata"].setdefault("annotations", {}).update(more.pop("annotations", {}))
    made["metadata"].setdefault("labels", {}).update(more.pop("labels", {}))
    if node:
        made["spec"]["nodeName"] = node
    made["spec"].update(more)
    return made


def images(count: int) -> list[Manifest]:
    return [{"name": f"c{i}", "image": f"registry.example.com/i{i}:1"} for i in range(count)]


def deep(levels: int) -> str:
    return '{"gatherStrategy":' + "[" * levels + "]" * levels + "}"


GANG = {f"{KOORDINATOR}/name": "g", f"{KOORDINATOR}/min-available": "1"}
SPREAD = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"a": "b"}}}
HOSTILE = [
    pod("volume", "n-0", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "//["}}]),
    pod("digits", requests={"cpu": "9" * 5000}),
    pod("digits-of-another", requests={"cpu": "9" * 5000}, scheduler_name="somebody-else"),
    pod("digits-bound", "n-0", requests={"cpu": "9" * 5000, "memory": "1Gi"}),
    pod("deep-annotation", annotations={**GANG, f"{KOORDINATOR}/network-topology-spec": deep(3000)}),
    pod("gpus-bound", "n-0", requests={GPU: str(2**52)}),
    pod("gpus", requests={GPU: "9000"}),
    pod("allocated", "n-1", requests={GPU: "1"}, annotations={"gpu.scheduling/allocated": "9" * 5000}),
    pod("resources", requests={f"example.com/r{i}": "1" for i in range(10_000)}, scheduler_name="somebody-else"),
    pod("keys", nodeSelector={f"k{i}": "v" for i in range(10_000)}),
    pod("images", containers=images(5000)),
    pod("some-images", containers=images(256)),
    pod("spread", topologySpreadConstraints=[{**SPREAD, "topologyKey": f"k{i}"} for i in range(3000)]),
    pod(
        "workers",
        labels={
            "leaderworkerset.sigs.k8s.io/name": "l",
            "leaderworkerset.sigs.k8s.io/group-index": "0",
            "leaderworkerset.sigs.k8s.io/worker-index": "1",
        },
        annotations={
            "leaderworkerset.sigs.k8s.io/size": "9999",
            "leaderworkerset.sigs.k8s.io/subgroup-size": "1",
        },
    ),
]


def report(name: str) -> Manifest:
    """What one node's agent may write."""
    hcas = [{"name": f"mlx5_{i}", "model": "x", "ports": 2_000_000_000, "state": "Active"} for i in range(2)]
    devices = [{"id": i, "model": "x", "memoryMiB": 81920, "health": "Healthy"} for i in range(8)]
    status = {"total": 8, "devices": devices, "fabric": {"hcas": hcas}}
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuNodeStatus",
        "metadata": {"name": name},
        "spec": {"nodeName": name},
        "status": status,
    }


def lease(namespace: str) -> Manifest:
    """A lease of a device that no node has."""
    holders = json.dumps({"u": {"pod": "default/p", "by": "x.1", "ids": [-1]}})
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "gpu-n-0",
            "namespace": namespace,
            "labels": {"gpu.scheduling/managed": "true"},
            "annotations": {"gpu.scheduling/node": "n-0", "gpu.scheduling/holders": holders},
        },
        "spec": {},
    }


async def test_no_object_stops_the_scheduler_or_keeps_a_healthy_pod_from_its_node(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await install(empty)
    await empty.create_many(kwok_node(f"n-{i}", gpus=8) for i in range(4))
    scheduler = start_gangline(own_control_plane.kubeconfig, configuration(empty.namespace))
    await _healthy(empty, "healthy-before")
    before = _mib(scheduler)
    slow, grown = {}, {}
    took: list[float] = []
    for number, hostile in enumerate(HOSTILE):
        used = scheduler.process.usage().cpu_s
        await empty.create(hostile)
        await _healthy(empty, f"healthy-{number}")
        seconds = scheduler.process.usage().cpu_s - used
        now = _mib(scheduler)
        took.append(seconds)
        if seconds > SOON_S:
            slow[hostile["metadata"]["name"]] = seconds
        if now - before > MOST_MIB:
            grown[hostile["metadata"]["name"]] = now - before
        before = max(before, now)
    print(f"a healthy pod beside each of {len(took)} hostile ones is bound within {max(took):.2f} s of CPU time")
    await empty.create(report("n-2"))
    await empty.create(lease(empty.namespace))
    async with _deep_managed_fields(empty):
        await _healthy(empty, "healthy-beside-deep-fields")
    await _healthy(empty, "healthy-after")

    assert (slow, grown) == ({}, {}) and scheduler.alive()
    said = await _complaints(empty, {"digits", "keys", "images"})
    assert said["digits"].endswith("a quantity of 5000 characters, and at most 128 are read")
    assert said["keys"] == "spec.nodeSelector: 10000 entries, and at most 256 are read"
    assert said["images"] == "spec.containers: 5000 entries, and at most 256 are read"
    scheduler.kill()
    scheduler.start()
    await _healthy(empty, "healthy-after-a-restart")


async def _complaints(api: Api, pods: set[str]) -> dict[str, str]:
    """What the events about invalid pods say, once there is one about each of these."""

    async def said() -> dict[str, str] | None:
        events = await api.list(EVENTS.format(api.namespace))
        found = {each["regarding"]["name"]: each["note"] for each in events if each["reason"] == "InvalidPod"}
        return found if pods <= found.keys() else None

    return await api.until(said, f"there are events about {pods}")


async def _healthy(api: Api, name: str) -> None:
    """Create a pod that asks for little, and wait until it has a node."""
    await api.create(gpu_pod(name, gpus=0, scheduler_name=SCHEDULER))
    await api.wait_for(api.pods, lambda pod: pod["metadata"]["name"] == name and is_bound(pod), 1)


@asynccontextmanager
async def _deep_managed_fields(api: Api) -> AsyncIterator[None]:
    """Have a pod whose managedFields are nested deeper than any decoder goes, those of these tests too."""
    fields = '{"f:a":' * 1500 + "{}" + "}" * 1500
    entry = (
        '{"manager":"m","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z",'
        f'"fieldsType":"FieldsV1","fieldsV1":{fields}}}'
    )
    body = json.dumps(pod("deep-fields"))
    assert body.startswith('{"apiVersion"')
    metadata = json.dumps(pod("deep-fields")["metadata"])
    wanted = metadata[:-1] + f',"managedFields":[{entry}]}}'
    answer = await api.send_text("POST", ELSEWHERE, body.replace(metadata, wanted))
    assert fields in answer.replace(" ", "")
    try:
        yield
    finally:
        await api.send_text("DELETE", f"{ELSEWHERE}/deep-fields")


def _mib(scheduler: Gangline) -> float:
    """The memory of the scheduler's process, in MiB."""
    status = Path(f"/proc/{scheduler.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
