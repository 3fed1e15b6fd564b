"""The nodes of examples/leaf-spine on a cluster with the chart, and one simulated agent that reports them all."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from gangline_e2e import processes
from gangline_e2e.gpu_crds import NODE_STATUSES
from gangline_e2e.release import EXAMPLES, Release
from gangline_e2e.workloads import Manifest

FOLDER = EXAMPLES / "leaf-spine"
LEAF = "network.topology.nvidia.com/leaf"
STOP_S = 10.0


@asynccontextmanager
async def leaf_spine(release: Release, folder: Path) -> AsyncIterator[dict[str, set[str]]]:
    """The names of the nodes by their leaf; at the end nodes, reports and the team's pods are gone."""
    nodes: list[Manifest] = list(yaml.safe_load_all((FOLDER / "nodes.yaml").read_text()))
    leaves: dict[str, set[str]] = {}
    for node in nodes:
        leaves.setdefault(node["metadata"]["labels"][LEAF], set()).add(node["metadata"]["name"])
    names = set().union(*leaves.values())
    words = ["agent", "--kubeconfig", str(release.simulator), "--simulate", "gb200", "--nodes", "type=kwok"]
    log = folder / "agent.log"
    agent = processes.start("agent of leaves", [sys.executable, "-m", "gangline", *words], log)

    async def reported() -> set[str]:
        found = await release.api.list(NODE_STATUSES)
        return names & {each["metadata"]["name"] for each in found if each.get("status", {}).get("devices")}

    async def all_reported() -> bool:
        return await reported() == names

    async def none_reported() -> bool:
        return not await reported()

    try:
        await release.api.create_many(nodes)
        await release.api.until(all_reported, f"all nodes are reported, as {log} says")
        yield leaves
        await release.clear()
        await release.api.delete_many(f"/api/v1/nodes/{name}" for name in names)
        await release.api.until(none_reported, "no node is reported")
    finally:
        processes.stop([agent], STOP_S)
    assert "Traceback" not in log.read_text(), log.read_text()[-10_000:]
