"""Nodes with GPUs: kwok plays the nodes, and simulated agents report what is in them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from gangline_e2e import processes
from gangline_e2e.api import Api
from gangline_e2e.errors import StartFailed, WaitedTooLong
from gangline_e2e.gpu_crds import NODE_STATUSES, install
from gangline_e2e.processes import Process
from gangline_e2e.workloads import Manifest, Manifests, kwok_node

HARDWARE = "example.com/hardware"
"""The label of a node by which its agent finds it."""
GPUS = {"dgx-h100": 8, "hgx-a100": 8, "pcie-4": 4, "mig-4": 4}
"""GPUs per node: three presets of the agent, and a template of ours."""
SCHEDULER = "gpu-scheduler"
PROFILE = Path(__file__).parents[2] / "profiles/gangline_profiles/gpu-scheduler.yaml"
START_S = 240.0
PERIOD_S = 120
"""Seconds between two heartbeats: as many as health stays known for, because a heartbeat costs the API server as much
as a few pods.
"""
STOP_S = 10.0


@asynccontextmanager
async def fleet(api: Api, kubeconfig: Path, folder: Path, **sizes: int) -> AsyncIterator[Manifests]:
    """So many nodes of each hardware (`dgx_h100=3`), with agents that report until the block ends; their statuses."""
    await install(api)
    names = {kind.replace("_", "-"): count for kind, count in sizes.items()}
    nodes = {f"{kind}-{number}": kind for kind, count in names.items() for number in range(count)}
    await api.create_many(kwok_node(name, gpus=GPUS[kind], labels={HARDWARE: kind}) for name, kind in nodes.items())
    (folder / "mig-4.yaml").write_text(yaml.safe_dump(_mig_template()))
    log = folder / "agents.log"
    agents = []
    try:
        for kind in names:
            what = str(folder / "mig-4.yaml") if kind == "mig-4" else kind
            words = ["--kubeconfig", str(kubeconfig), "--simulate", what, "--nodes", f"{HARDWARE}={kind}"]
            command = [sys.executable, "-m", "gangline", "agent", *words, f"--period={PERIOD_S}"]
            agents.append(processes.start(f"agent of {kind}", command, log))
        yield await _reports(api, agents, len(nodes), log)
    finally:
        processes.stop(agents, STOP_S)
    await api.delete_many(f"{NODE_STATUSES}/{name}" for name in nodes)
    assert "Traceback" not in log.read_text(), log.read_text()[-10_000:]


def configuration(namespace: str, granularity: str = "device") -> dict[str, Any]:
    """The shipped profile of the GPU scheduler, with its leases in a namespace."""
    config: dict[str, Any] = yaml.safe_load(PROFILE.read_text())
    args = {"namespace": namespace, "granularity": granularity}
    config["profiles"][0]["pluginConfig"].append({"name": "DeviceLease", "args": args})
    return config


async def _reports(api: Api, agents: list[Process], count: int, log: Path) -> Manifests:
    """Wait until so many nodes are reported; their statuses."""
    try:
        return await api.wait_for(NODE_STATUSES, _has_devices, count, START_S)
    except WaitedTooLong as error:
        ended = [agent.name for agent in agents if not agent.alive()]
        raise StartFailed(f"{error}; ended: {ended}; {log} ends with:{processes.last_lines(log)}") from error


def _has_devices(status: Manifest) -> bool:
    return bool(status.get("status", {}).get("devices"))


def _mig_template() -> Manifest:
    """Four A100s; two of them are cut into MIG instances."""
    instances = {2: [("1g.10gb", 9728)] * 7, 3: [("3g.40gb", 40192)] * 2}
    return {"status": {"devices": [_device(id, instances.get(id, [])) for id in range(GPUS["mig-4"])]}}


def _device(id: int, instances: list[tuple[str, int]]) -> Manifest:
    cut = [
        {"uuid": f"MIG-{id}-{number}", "profile": profile, "memoryMiB": memory}
        for number, (profile, memory) in enumerate(instances)
    ]
    whole = {"id": id, "model": "NVIDIA A100 80GB PCIe", "memoryMiB": 81920, "health": "Healthy", "numaNode": id // 2}
    return whole | ({"migDevices": cut} if cut else {})
