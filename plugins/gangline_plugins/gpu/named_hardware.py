"""Common machines by name: their devices and links, as an agent would report them.

GB/s count both directions together, as NVIDIA states them; for PCIe they are those of the slowest part of the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from gangline import custom_resources

Kind = Literal["NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS"]
_PCIE_GEN4: Mapping[Kind, float] = MappingProxyType({"PIX": 64.0, "PXB": 64.0, "PHB": 50.0, "NODE": 40.0, "SYS": 32.0})
_NVLINK: Kind = "NVLINK"


def devices(name: str) -> list[custom_resources.GpuDevice]:
    """The devices of a machine, all healthy. Raises KeyError for a name that is not in NAMES."""
    return _MACHINES[name]()


def _switched(
    model: str, count: int, memory_gib: int, gbps: float, sockets: int = 2
) -> list[custom_resources.GpuDevice]:
    """A machine whose devices are all linked with each other through NVSwitch."""

    def link(a: int, b: int) -> custom_resources.DeviceLink:
        return custom_resources.DeviceLink(b, _NVLINK, gbps)

    return _machine(model, count, memory_gib, sockets, link, lambda id: "nvlink-0")


def _bridged(model: str, count: int, memory_gib: int, gbps: float) -> list[custom_resources.GpuDevice]:
    """A machine with a bridge between neighbours and PCIe between all others: four devices behind each socket."""

    def link(a: int, b: int) -> custom_resources.DeviceLink:
        if a // 2 == b // 2:
            return custom_resources.DeviceLink(b, _NVLINK, gbps)
        kind: Kind = "PHB" if a // 4 == b // 4 else "SYS"
        return custom_resources.DeviceLink(b, kind, _PCIE_GEN4[kind])

    return _machine(model, count, memory_gib, max(1, count // 4), link, lambda id: f"nvlink-{id // 2}")


def _plain(model: str, count: int, memory_gib: int) -> list[custom_resources.GpuDevice]:
    """A machine with PCIe only: two devices behind a switch, four behind a socket."""

    def link(a: int, b: int) -> custom_resources.DeviceLink:
        kind: Kind = "PIX" if a // 2 == b // 2 else "PHB" if a // 4 == b // 4 else "SYS"
        return custom_resources.DeviceLink(b, kind, _PCIE_GEN4[kind])

    return _machine(model, count, memory_gib, max(1, count // 4), link, lambda id: "")


def _machine(
    model: str,
    count: int,
    memory_gib: int,
    sockets: int,
    link: Callable[[int, int], custom_resources.DeviceLink],
    island: Callable[[int], str],
) -> list[custom_resources.GpuDevice]:
    made = []
    for id in range(count):
        links = [link(id, peer) for peer in range(count) if peer != id]
        fastest = max((each.gbps for each in links if each.kind == _NVLINK), default=0.0)
        made.append(
            custom_resources.GpuDevice(
                id=id,
                uuid=f"GPU-{id:08x}-0000-4000-8000-000000000000",
                model=model,
                memory_mi_b=memory_gib * 1024,
                health="Healthy",
                bandwidth_gbps=int(fastest),
                island=island(id),
                numa_node=id * sockets // count,
                links=links,
            )
        )
    return made


_MACHINES: Mapping[str, Callable[[], list[custom_resources.GpuDevice]]] = MappingProxyType(
    {
        "dgx-a100": lambda: _switched("NVIDIA A100-SXM4-80GB", 8, 80, 600.0),
        "hgx-a100-16": lambda: _switched("NVIDIA A100-SXM4-40GB", 16, 40, 600.0),
        "hgx-h100": lambda: _switched("NVIDIA H100 80GB HBM3", 8, 80, 900.0),
        "hgx-h200": lambda: _switched("NVIDIA H200", 8, 141, 900.0),
        "hgx-b200": lambda: _switched("NVIDIA B200", 8, 180, 1800.0),
        "gb200-tray": lambda: _switched("NVIDIA GB200", 4, 186, 1800.0),
        "pcie-bridged-4": lambda: _bridged("NVIDIA A100 80GB PCIe", 4, 80, 600.0),
        "pcie-bridged-8": lambda: _bridged("NVIDIA H100 NVL", 8, 94, 600.0),
        "pcie-4": lambda: _plain("NVIDIA L40S", 4, 48),
        "pcie-8": lambda: _plain("NVIDIA L40S", 8, 48),
    }
)
NAMES = tuple(_MACHINES)
"""The names that `devices` knows."""
