"""Members of a gang that differ in what annotations and claims say are each placed as they have to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from .placing import Manifest, node, place, pod, report, spec, workload

MAP = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3"
MAPPED = {"gpu-scheduling-map": MAP}
EXPECTED = ["node1", "node2", "node3", "node4", "node4"]
ALLOWED: Manifest = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "default", "annotations": {"gangline.dev/allow": "scheduling-map"}},
}
GROUP = "scheduling.x-k8s.io/pod-group"
PROFILES = pytest.mark.parametrize("profile", ["gpu-scheduler", "topology-aware-scheduler"])


def group(name: str, size: int) -> Manifest:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": size},
    }


def claim(name: str, gpus: int) -> Manifest:
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"count": gpus}},
    }


@PROFILES
def test_each_pod_of_an_indexed_job_goes_where_the_map_says(tmp_path: Path, profile: str) -> None:
    nodes = [node(f"node{i}", gpus=4) for i in range(1, 5)]
    job = workload(
        "Job", "job", spec(profile=profile), of_pods=MAPPED, completionMode="Indexed", parallelism=5, completions=5
    )

    placed = place(tmp_path, [ALLOWED, *nodes, job], profile)

    assert [placed[name] for name in sorted(placed)] == EXPECTED


@PROFILES
def test_each_pod_of_a_group_goes_where_the_map_says(tmp_path: Path, profile: str) -> None:
    nodes = [node(f"node{i}", gpus=4) for i in range(1, 5)]
    pods = [pod(f"app-{i}", spec(profile=profile), MAPPED, **{GROUP: "app"}) for i in range(5)]

    placed = place(tmp_path, [ALLOWED, *nodes, group("app", 5), *pods], profile)

    assert [placed[name] for name in sorted(placed)] == EXPECTED


@pytest.mark.parametrize(
    "sizes", [(4, 6, 4), (1, 2, 3, 5, 6, 7), (2, 2, 6, 6), (3, 3, 2, 5, 3)], ids=lambda sizes: "-".join(map(str, sizes))
)
def test_a_gang_whose_members_have_different_claims_starts_when_they_fit(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    names = [f"node{i}" for i in range(-(-sum(sizes) // 8))]
    claims = [claim(f"claim-{i}", gpus) for i, gpus in enumerate(sizes)]
    pods = [
        pod(f"app-{i}", spec(), {"gpu.scheduling/claim": f"claim-{i}"}, **{GROUP: "app"}) for i in range(len(sizes))
    ]

    placed = place(tmp_path, [*map(node, names), *map(report, names), *claims, group("app", len(sizes)), *pods])

    assert len(placed) == len(sizes)
    taken = {name: sum(gpus for i, gpus in enumerate(sizes) if placed[f"app-{i}"] == name) for name in names}
    assert max(taken.values()) <= 8
