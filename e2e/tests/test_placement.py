"""Pods go to nodes that may have them and have room for them, as each profile likes it best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane
from gangline_e2e.placements import faults, nodes_of
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, kwok_node

NODES = "/api/v1/nodes"
GPU_WEIGHT = {"name": "nvidia.com/gpu", "weight": 10}
PACKING = {"scoringStrategy": {"type": "MostAllocated", "resources": [GPU_WEIGHT, {"name": "cpu", "weight": 1}]}}
CONFIG = configuration(profile("spread"), profile("pack", args={"NodeResourcesFit": PACKING}))
TRAINING = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


async def test_a_thousand_mixed_pods_of_two_profiles_go_where_they_may_and_fit(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create_many(_mixed_nodes())
    start_gangline(own_control_plane.kubeconfig, CONFIG)
    await empty.create_many(_mixed_pods())

    pods = await empty.wait_for(empty.pods, is_bound, 1000, timeout_s=120)

    assert faults(pods, await empty.list(NODES)) == []
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"spread", "pack"}
    whole = [pod for pod in pods if pod["metadata"]["name"].startswith("whole-")]
    assert nodes_of(whole) == {f"training-{i}" for i in range(20)}


async def test_most_allocated_fills_a_fifth_of_the_nodes_that_least_allocated_spreads_over(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    pools = ("spread", "pack")
    await empty.create_many(kwok_node(f"{pool}-{i}", labels={"pool": pool}) for pool in pools for i in range(50))
    start_gangline(own_control_plane.kubeconfig, CONFIG)
    await empty.create_many(
        gpu_pod(f"{pool}-{i}", cpu="8", scheduler_name=pool, spec={"nodeSelector": {"pool": pool}})
        for i in range(80)
        for pool in pools
    )

    pods = await empty.wait_for(empty.pods, is_bound, 160)

    nodes = {pool: nodes_of(pod for pod in pods if pod["spec"]["schedulerName"] == pool) for pool in pools}
    assert len(nodes["spread"]) == 50
    assert len(nodes["pack"]) == 10
    assert faults(pods, await empty.list(NODES)) == []


def _mixed_nodes() -> Iterator[Manifest]:
    """200 nodes: 120 large, 30 small, 20 without GPUs, 20 tainted, 10 cordoned."""
    for i in range(120):
        yield kwok_node(f"large-{i}", labels={"size": "large"})
    for i in range(30):
        yield kwok_node(f"small-{i}", cpu="32", memory="256Gi", gpus=4, pods=20, labels={"size": "small"})
    for i in range(20):
        yield kwok_node(f"plain-{i}", cpu="64", memory="512Gi", gpus=0, labels={"size": "plain"})
    for i in range(20):
        yield kwok_node(f"training-{i}", taints=[TRAINING], labels={"size": "large"})
    for i in range(10):
        node = kwok_node(f"cordoned-{i}", labels={"size": "large"})
        node["spec"]["unschedulable"] = True
        yield node


def _mixed_pods() -> Iterator[Manifest]:
    """1,000 pods of seven kinds, half of each for either profile."""
    for number, (kind, fields) in enumerate(_kinds()):
        scheduler_name = "spread" if number % 2 else "pack"
        yield gpu_pod(f"{kind}-{number}", scheduler_name=scheduler_name, **fields)


def _kinds() -> Iterator[tuple[str, dict[str, Any]]]:
    large, small = {"nodeSelector": {"size": "large"}}, {"nodeSelector": {"size": "small"}}
    dedicated = {"affinity": _only_tainted(), **large}
    for _ in range(20):
        yield "whole", {"gpus": 8, "tolerations": [TOLERATION], "spec": dedicated}
    for _ in range(60):
        yield "four", {"gpus": 4, "cpu": "8", "spec": large}
    for _ in range(120):
        yield "two", {"gpus": 2, "cpu": "4", "memory": "32Gi", "spec": large}
    for _ in range(80):
        yield "one-small", {"gpus": 1, "memory": "16Gi", "spec": small}
    for _ in range(220):
        yield "one", {"gpus": 1, "cpu": "500m", "spec": large}
    for _ in range(300):
        yield "cpu", {"gpus": 0, "cpu": "7"}
    for _ in range(200):
        yield "memory", {"gpus": 0, "cpu": "250m", "memory": "100Gi"}


def _only_tainted() -> Manifest:
    """A required node affinity to the tainted nodes, which are told by their names."""
    names = {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"training-{i}" for i in range(20)]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [names]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
