"""Pods on their own fill domains that are begun before they begin another, so that gangs find complete ones."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from .placing import LEAF, SPINE, Manifest, node, place, pod, report, spec, workload

PROFILES = pytest.mark.parametrize("profile", ["gpu-scheduler", "topology-aware-scheduler"])
GPU_COUNT = "topology.scheduler/gpu-count"


def fabric(is_reported: bool = False) -> list[Manifest]:
    """32 nodes of 8 GPUs in 8 leaves of 2 spines."""
    names = {
        f"l{leaf}-n{i}": {SPINE: f"spine-{leaf // 4}", LEAF: f"leaf-{leaf}"} for leaf in range(8) for i in range(4)
    }
    nodes = [node(name, labels=labels) for name, labels in names.items()]
    return [*nodes, *map(report, names)] if is_reported else nodes


def job(name: str, profile: str, nodes: int = 1, is_counted: bool = True, gpus: int = 8) -> Manifest:
    asked = {GPU_COUNT: str(gpus * nodes)} if is_counted else {}
    return workload(
        "Job", name, spec(gpus, profile), asked, completionMode="Indexed", parallelism=nodes, completions=nodes
    )


def leaves_of(placed: dict[str, str], start: str = "") -> set[str]:
    return {name.split("-")[0] for pod, name in placed.items() if pod.startswith(start)}


@PROFILES
@pytest.mark.parametrize("is_counted", [True, False], ids=["gpu-count", "plain"])
@pytest.mark.parametrize("is_reported", [True, False], ids=["agents", "labels"])
def test_jobs_of_whole_nodes_begin_no_more_leaves_than_they_need(
    tmp_path: Path, profile: str, is_counted: bool, is_reported: bool
) -> None:
    jobs = [job(f"job-{i}", profile, is_counted=is_counted) for i in range(12)]

    for seed in range(3 if os.environ.get("CI") else 1):
        placed = place(tmp_path, [*fabric(is_reported), *jobs], profile, seed=seed)

        assert len(placed) == 12 and len(leaves_of(placed)) <= 4


@PROFILES
@pytest.mark.parametrize("seed", range(3))
def test_small_pods_begin_no_more_leaves_than_they_need(tmp_path: Path, profile: str, seed: int) -> None:
    sizes = random.Random(seed).choices([1, 2, 4, 8], k=24)
    pods = [pod(f"pod-{i}", spec(gpus, profile)) for i, gpus in enumerate(sizes)]

    placed = place(tmp_path, [*fabric(), *pods], profile, seed=seed)

    assert len(placed) == 24 and len(leaves_of(placed)) <= -(-sum(sizes) // 32) + 1


@pytest.mark.parametrize(("singles", "nodes"), [(12, 8), (16, 4)])
@pytest.mark.parametrize("is_counted", [True, False], ids=["gpu-count", "plain"])
@pytest.mark.parametrize("seed", range(3))
def test_gangs_that_need_complete_leaves_start_beside_jobs_of_single_nodes(
    tmp_path: Path, singles: int, nodes: int, is_counted: bool, seed: int
) -> None:
    profile = "topology-aware-scheduler"
    jobs = [job(f"job-{i}", profile, is_counted=is_counted) for i in range(singles)]

    placed = place(tmp_path, [*fabric(), *jobs, job("gang", profile, nodes)], profile, seed=seed)

    assert len(placed) == singles + nodes
    assert len(leaves_of(placed, "gang")) == nodes // 4
