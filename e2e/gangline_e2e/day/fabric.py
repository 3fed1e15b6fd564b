"""A large cluster: nodes with GPUs in leaves and spines, and a report on the GPUs of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from gangline_e2e.api import Api
from gangline_e2e.gangs import LEAF, SPINE
from gangline_e2e.gpu_crds import NODE_STATUSES, node_status
from gangline_e2e.workloads import Manifest, kwok_node

KWOK = {"type": "kwok"}
"""As nodes of KWOK have it, by which `gangline agent --nodes type=kwok` finds them."""
PRODUCT = "NVIDIA-H100-80GB-HBM3"
MODEL = "NVIDIA H100 80GB HBM3"
MEMORY_MIB = 81559
NVLINK_GBPS = 900
READY = {"type": "Ready", "status": "True", "reason": "Static"}
MAKERS = 48
"""Nodes that are made at the same time."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """A cluster of nodes in leaves and leaves in spines, of equal sizes as far as the numbers can be divided."""

    nodes: int = 5000
    gpus: int = 8
    leaves: int = 250
    spines: int = 10

    def name(self, number: int) -> str:
        """The name of a node."""
        return f"node-{number:05}"

    def leaf(self, number: int) -> int:
        """The leaf of a node, counted over all spines."""
        return number * self.leaves // self.nodes

    def spine(self, number: int) -> int:
        """The spine of a node."""
        return self.leaf(number) * self.spines // self.leaves

    @property
    def leaf_size(self) -> int:
        """The nodes of the smallest leaf."""
        return self.nodes // self.leaves

    @property
    def spine_size(self) -> int:
        """The nodes of the smallest spine, at least."""
        return self.leaf_size * (self.leaves // self.spines)

    def node(self, number: int) -> Manifest:
        """A node that is Ready from the start, so that nobody has to say so 5,000 times."""
        labels = {
            **KWOK,
            SPINE: f"spine-{self.spine(number)}",
            LEAF: f"leaf-{self.leaf(number)}",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": PRODUCT,
        }
        node = kwok_node(self.name(number), gpus=self.gpus, labels=labels)
        node["status"]["conditions"] = [READY]
        return node

    def report(self, number: int) -> Manifest:
        """The status of its GpuNodeStatus: healthy GPUs that NVSwitches connect; without a heartbeat it stays good."""
        name = self.name(number)
        devices = [
            {
                "id": id,
                "uuid": f"GPU-{name}-{id}",
                "model": MODEL,
                "memoryMiB": MEMORY_MIB,
                "health": "Healthy",
                "island": "0",
                "bandwidthGBps": NVLINK_GBPS,
            }
            for id in range(self.gpus)
        ]
        return {"status": {"total": self.gpus, "healthy": self.gpus, "devices": devices}}


async def build(api: Api, fabric: Fabric, numbers: Iterable[int] | None = None) -> None:
    """Make nodes, all of them unless numbers are given, and their reports; the kinds have to be there."""
    left = iter(range(fabric.nodes) if numbers is None else numbers)

    async def work() -> None:
        for number in left:
            await make(api, fabric, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(MAKERS):
            group.create_task(work())


async def make(api: Api, fabric: Fabric, number: int) -> None:
    """Make one node, its report first: pods on a node without a report get GPUs by number, and nobody knows which."""
    name = fabric.name(number)
    await api.create(node_status(name))
    await api.merge(f"{NODE_STATUSES}/{name}/status", fabric.report(number))
    await api.create(fabric.node(number))


async def lose(api: Api, fabric: Fabric, number: int) -> None:
    """Delete a node and its report, as a cloud does with a machine that is gone."""
    name = fabric.name(number)
    await api.delete(f"/api/v1/nodes/{name}", at_once=True)
    await api.delete(f"{NODE_STATUSES}/{name}")
