"""The values that are read of a node's GPUs, before the agent judges them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Distance = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
"""The PCIe distance of two GPUs, in the words of nvidia-smi."""

SWITCH = "switch"
"""The peer of a link that ends at an NVSwitch."""


@dataclass(frozen=True, slots=True)
class NvLink:
    """An active NVLink of a GPU: the bus id of the GPU at its other end, or SWITCH, and GB/s in both directions."""

    peer: str
    gbps: float


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG instance of a GPU."""

    uuid: str
    profile: str
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; ``problems`` say why the GPU must not be used, and are empty if it is healthy."""

    id: int
    uuid: str = ""
    product: str = ""
    memory_mib: int = 0
    bus_id: str = ""
    pcie_root: str = ""
    """The PCIe root complex, as pci0000:00."""
    numa_node: int = -1
    pcie_gbps: float = 0.0
    nvlinks: tuple[NvLink, ...] = ()
    mig_capable: bool = False
    mig: tuple[MigInstance, ...] = ()
    clique: str = ""
    on_fabric: bool = False
    """Whether the GPU is at NVSwitches, so that it needs the NVLink fabric of the node."""
    fabric_problem: str = ""
    """What is wrong with the fabric as the GPU sees it; it is among the problems too."""
    compute: tuple[int, int] = (0, 0)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All GPUs of a node at one moment; versions are empty where they could not be read.

    ``distances`` holds each pair of ids once, the smaller one first. ``cuda`` is major and minor.
    """

    gpus: tuple[Gpu, ...] = ()
    distances: Mapping[tuple[int, int], Distance] = field(default_factory=dict)
    driver: str = ""
    cuda: tuple[int, int] = (0, 0)
    machine: str = ""


class Unavailable(Exception):
    """NVML cannot be used now; the reason is one word, for the condition NVMLAvailable."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"
