"""What a user asks for outranks what a profile prefers, in every profile for GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .placing import LEAF, SPINE, Manifest, node, place, pod, spec, workload

PREFIX = "topology.scheduler"
HOST = "kubernetes.io/hostname"

pytestmark = pytest.mark.parametrize("profile", ["gpu-scheduler", "topology-aware-scheduler"])


def leaves(number: int, nodes: int = 2) -> list[Manifest]:
    """Nodes l0-n0, l0-n1, l1-n0 and so on."""
    return [
        node(f"l{leaf}-n{i}", labels={SPINE: "spine-0", LEAF: f"leaf-{leaf}"})
        for leaf in range(number)
        for i in range(nodes)
    ]


def begun(name: str, gpus: int = 4) -> Manifest:
    """A pod that is on a node already."""
    return pod(f"begun-{name}", spec(gpus, nodeName=name))


def others(placed: dict[str, str]) -> list[str]:
    return sorted(name for name in placed.values())


def test_the_replicas_of_a_distributed_deployment_get_a_node_each(tmp_path: Path, profile: str) -> None:
    asked = {f"{PREFIX}/placement-strategy": "distributed"}
    deployment = workload("Deployment", "web", spec(1, profile), asked, replicas=4)

    placed = place(tmp_path, [*leaves(2), deployment], profile)

    assert others(placed) == ["l0-n0", "l0-n1", "l1-n0", "l1-n1"]


def test_a_preferred_domain_comes_before_a_node_that_is_in_use(tmp_path: Path, profile: str) -> None:
    single = pod("single", spec(1, profile), {f"{PREFIX}/preferred-domain": "leaf-1"})

    placed = place(tmp_path, [*leaves(2), begun("l0-n0"), single], profile)

    assert placed["single"].startswith("l1-")


def test_the_preferred_domain_of_a_gang_comes_before_nodes_that_are_in_use(tmp_path: Path, profile: str) -> None:
    asked = {f"{PREFIX}/preferred-domain": "leaf-1", f"{PREFIX}/gpu-count": "8"}
    job = workload("Job", "job", spec(4, profile), asked, completionMode="Indexed", parallelism=2, completions=2)

    placed = place(tmp_path, [*leaves(2), begun("l0-n0"), job], profile)

    del placed["begun-l0-n0"]
    assert [name[:2] for name in placed.values()] == ["l1", "l1"]


def test_replicas_that_prefer_to_be_apart_are(tmp_path: Path, profile: str) -> None:
    apart: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOST}
    weighted = [{"weight": 100, "podAffinityTerm": apart}]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    deployment = workload("Deployment", "web", spec(4, profile, affinity=affinity), replicas=2)

    placed = place(tmp_path, [*leaves(1), deployment], profile)

    assert others(placed) == ["l0-n0", "l0-n1"]


def test_members_of_a_gang_go_to_the_nodes_that_they_prefer(tmp_path: Path, profile: str) -> None:
    expression = {"key": LEAF, "operator": "In", "values": ["leaf-1"]}
    weighted = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    job = workload(
        "Job",
        "job",
        spec(2, profile, affinity=affinity),
        {f"{PREFIX}/gpu-count": "4"},
        completionMode="Indexed",
        parallelism=2,
        completions=2,
    )

    placed = place(tmp_path, [*leaves(2), begun("l0-n0"), job], profile)

    del placed["begun-l0-n0"]
    assert [name[:2] for name in placed.values()] == ["l1", "l1"]


def test_nodes_that_are_equal_in_what_is_asked_for_are_packed(tmp_path: Path, profile: str) -> None:
    single = pod("single", spec(1, profile), {f"{PREFIX}/preferred-domain": "leaf-1"})

    placed = place(tmp_path, [*leaves(2, 4), begun("l1-n3", 2), begun("l0-n0", 7), single], profile)

    assert placed["single"] == "l1-n3"
