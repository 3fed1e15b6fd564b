"""GPUs are counted whichever way pods came by them: by requests, claims, scheduling maps and DRA."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from gangline import main, model
from gangline.commands.status import show
from gangline.commands.topology import drawn, nodes_of
from gangline.kube.resources import GPU_CLAIMS, GPU_NODE_STATUSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from gangline.overview.gpu_use import asked_gpus, device_ids, gpu_use
from gangline.overview.summary import overview
from gangline.overview.topology_metrics import TopologyMetrics
from gangline.state.cache import Cache
from gangline.state.topology import Topology
from gangline.testing import cluster, make_node, make_pod
from gangline.wire.custom_resources import ALLOCATED, CLAIM, GpuClaim, GpuDevice, GpuNodeStatus, GpuNodeStatusStatus


def holder(name: str, ids: str, node: str = "a", gpus: int = 0) -> model.Pod:
    """A pod to which a claim or a map gave devices."""
    return make_pod(name, gpus=gpus, node=node, annotations={ALLOCATED: ids})


def report(name: str, devices: int) -> GpuNodeStatus:
    found = [GpuDevice(id=id, health="Healthy") for id in range(devices)]
    return GpuNodeStatus(model.ObjectMeta(name=name), status=GpuNodeStatusStatus(total=devices, devices=found))


def resource_claim(name: str, *devices: str, node: str = "a", driver: str = "gpu.nvidia.com") -> model.ResourceClaim:
    results = [{"driver": driver, "pool": node, "device": device} for device in devices]
    data: dict[str, Any] = {"metadata": {"name": name, "namespace": "default"}}
    return msgspec.convert({**data, "status": {"allocation": {"devices": {"results": results}}}}, model.ResourceClaim)


def counted(cache: Cache) -> list[tuple[int, int]]:
    use = gpu_use(cache)
    return [(int(total), int(used)) for total, used in zip(use.total, use.used, strict=True)][: cache.nodes.count]


def test_devices_of_claims_and_maps_count_as_used() -> None:
    cache = cluster([make_node("a"), make_node("b")], [holder("p", "0,1,2"), holder("q", "5")])

    assert counted(cache) == [(8, 4), (8, 0)]
    assert gpu_use(cache).ids[0] == {0, 1, 2, 5}


def test_a_pod_that_requests_what_its_claim_gave_counts_once() -> None:
    cache = cluster([make_node("a")], [holder("p", "0,1", gpus=2), make_pod("plain", gpus=1, node="a")])

    assert counted(cache) == [(8, 3)]


def test_a_device_that_several_share_counts_once() -> None:
    cache = cluster([make_node("a")], [holder("p", "3"), holder("q", "3"), holder("r", "3,4", gpus=2)])

    assert counted(cache) == [(8, 2)]


def test_a_node_without_a_device_plugin_has_what_its_agent_reports() -> None:
    cache = cluster([make_node("a", gpus=0)], [holder("p", "0,1")])
    cache.store(GPU_NODE_STATUSES).upsert(report("a", 4))

    assert counted(cache) == [(4, 2)]


def test_devices_of_dynamic_resource_allocation_count_as_used() -> None:
    cache = cluster([make_node("a"), make_node("b")], [holder("p", "0")])
    store = cache.store(RESOURCE_CLAIMS)
    store.upsert(resource_claim("one", "gpu-0", "gpu-1"))
    store.upsert(resource_claim("two", "slice-7", node="b"))
    store.upsert(resource_claim("network", "port-1", driver="dra.net"))
    store.upsert(model.ResourceClaim(model.ObjectMeta(name="waits", namespace="default")))

    assert counted(cache) == [(8, 2), (8, 1)]


@pytest.mark.parametrize(
    ("text", "ids"), [("0,1", (0, 1)), ("node-a:2,3", (2, 3)), ("", ()), ("x,-1,٣,4", (4,)), ("9" * 5000, ())]
)
def test_only_ids_are_read(text: str, ids: tuple[int, ...]) -> None:
    assert device_ids({ALLOCATED: text}) == ids


def full() -> Cache:
    """Every GPU is held by a claim, none is requested."""
    return cluster([make_node("a"), make_node("b")], [holder(f"p-{n}", "0,1,2,3,4,5,6,7", n) for n in "ab"])


def test_efficiency_leaves_out_what_is_stranded() -> None:
    """32 GPUs of which 3 are free where all CPUs are taken, and 2 where there are some."""
    nodes = [make_node(name, cpu=64, gpus=8) for name in "abcd"]
    asked = (("a", 64, 5), ("b", 32, 8), ("c", 32, 8), ("d", 8, 6))
    cache = cluster(nodes, [make_pod(f"on-{n}", cpu=cpu, gpus=gpus, node=n) for n, cpu, gpus in asked])
    waiting = cache.record(make_pod("waiting", cpu=8, gpus=1))

    told = msgspec.json.decode(msgspec.json.encode(overview(cache, [waiting], Topology(cache.nodes))))["gpus"]

    assert (told["total"], told["used"], told["stranded"]) == (32, 27, 3)
    assert (told["utilization"], told["efficiency"]) == (27 / 32, 29 / 32)
    assert f"{told['efficiency']:.0%}" == "91%"


def test_status_of_a_cluster_without_gpus_divides_by_nothing() -> None:
    cache = cluster([make_node("a", gpus=0)])

    gpus = overview(cache, [], Topology(cache.nodes)).gpus

    assert (gpus.total, gpus.utilization, gpus.efficiency) == (0, 0.0, 0.0)


def test_status_counts_them() -> None:
    cache = full()
    screen = Console(file=io.StringIO(), width=200)

    show(overview(cache, [], Topology(cache.nodes)), screen)

    assert isinstance(screen.file, io.StringIO)
    assert "16 of 16 GPUs on 2 nodes in use" in screen.file.getvalue()


def test_the_topology_draws_them_where_they_are() -> None:
    cache = cluster([make_node("a")], [holder("p", "1,6")])

    lines = "\n".join(line.plain for line in drawn(cache, Topology(cache.nodes)))

    assert "░█░░░░█░" in lines and "6 free" in lines
    assert next(nodes_of(cache, Topology(cache.nodes)))["ids"] == [1, 6]


def test_the_metrics_count_them() -> None:
    cache = full()
    metrics = TopologyMetrics(cache)
    metrics.topology = Topology(cache.nodes)
    metrics.take()

    text = "".join(metrics.lines())

    assert "topology_gpu_allocation_ratio 1.0" in text
    assert 'topology_node_gpu_allocated{domain="",node="a"} 8.0' in text


CLAIMED = """\
apiVersion: v1
kind: Node
metadata: {name: a}
status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 8}}
---
apiVersion: gpu.scheduling/v1
kind: GpuNodeStatus
metadata: {name: a}
status:
  total: 8
  devices: [DEVICES]
---
apiVersion: gpu.scheduling/v1
kind: GpuClaim
metadata: {name: three, namespace: default}
spec: {devices: {count: 3}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {gpu.scheduling/claim: three}}
spec:
  schedulerName: gpu-scheduler
  containers: [{name: main, image: main}]
""".replace("DEVICES", ", ".join(f"{{id: {id}, health: Healthy, island: i}}" for id in range(8)))


def test_a_simulation_counts_them_and_names_their_ids(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(CLAIMED)

    text = CliRunner().invoke(main.cli, ["simulate", str(tmp_path)], catch_exceptions=False)
    told = CliRunner().invoke(main.cli, ["simulate", str(tmp_path), "-o", "json"], catch_exceptions=False)

    assert "3/8" in text.output and "p (GPU 0,1,2)" in text.output
    (node,) = msgspec.json.decode(told.stdout)["nodes"]
    assert node["devices"] == {"default/p": [0, 1, 2]} and node["used"]["nvidia.com/gpu"] == 3


def asking(count: int, device_class: str = "gpu.nvidia.com") -> dict[str, Any]:
    """The spec of a ResourceClaim."""
    exactly = {"deviceClassName": device_class, "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gpus": 3}, 3),
        ({"annotations": {CLAIM: "pair"}}, 2),
        ({"annotations": {CLAIM: "unknown"}}, 0),
        ({"resource_claims": [model.PodResourceClaim("c", resource_claim_name="four")]}, 4),
        ({"resource_claims": [model.PodResourceClaim("c", resource_claim_template_name="six")]}, 6),
        ({"resource_claims": [model.PodResourceClaim("c", resource_claim_template_name="fabric")]}, 0),
        ({"resource_claims": [model.PodResourceClaim("c", resource_claim_name="unknown")]}, 0),
    ],
    ids=["requests", "GpuClaim", "no GpuClaim", "ResourceClaim", "template", "another class", "no ResourceClaim"],
)
def test_a_waiting_pod_asks_for_gpus_by_requests_or_claims(fields: dict[str, Any], expected: int) -> None:
    cache = cluster()
    claim: dict[str, Any] = {"metadata": {"name": "pair", "namespace": "default"}, "spec": {"devices": {"count": 2}}}
    cache.store(GPU_CLAIMS).upsert(msgspec.convert(claim, GpuClaim))
    four = {"metadata": {"name": "four", "namespace": "default"}, "spec": asking(4)}
    cache.store(RESOURCE_CLAIMS).upsert(msgspec.convert(four, model.ResourceClaim))
    for name, spec in (("six", asking(6)), ("fabric", asking(1, "fabric.example.com"))):
        made = {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": spec}}
        cache.store(RESOURCE_CLAIM_TEMPLATES).upsert(msgspec.convert(made, model.ResourceClaimTemplate))

    assert asked_gpus(cache.record(make_pod("p", **fields)), cache) == expected
