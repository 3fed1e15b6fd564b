"""Reads a node's RDMA adapters and GPUDirect Storage from /sys, /proc and /etc."""

from __future__ import annotations

import re
from pathlib import Path

from gangline.wire.custom_resources import Fabric, Hca

INFINIBAND = "sys/class/infiniband"
PEER_MEMORY = ("sys/module/nvidia_peermem", "sys/module/nv_peer_mem")
CUFILE = "etc/cufile.json"
NVIDIA_FS = "proc/driver/nvidia-fs/version"
NVME = "sys/class/nvme"


def read(root: Path) -> Fabric:
    """The fabric of the node whose file systems are mounted under ``root``, without missing parts."""
    gds = _text(root / NVIDIA_FS)
    version = re.search(r"\d+(\.\d+)+", gds or "")
    return Fabric(
        hcas=read_hcas(root),
        cu_file_enabled=gds is not None and (root / CUFILE).is_file(),
        gds_version=version.group() if version else "",
        nvme_peers=_names(root / NVME) if gds is not None else [],
    )


def read_hcas(root: Path) -> list[Hca]:
    """The RDMA adapters by name; ``ports`` counts the active ones, ``linkGbps`` is the fastest of them."""
    gpu_direct = any((root / module).is_dir() for module in PEER_MEMORY)
    return [_hca(root / INFINIBAND / name, gpu_direct) for name in _names(root / INFINIBAND)]


def numa_node(root: Path, bus_id: str) -> int:
    """The NUMA node of a PCI device by its bus id, as NVML writes it; -1 if unknown."""
    return _number(_device(root, bus_id) / "numa_node", -1)


def pcie_root(root: Path, bus_id: str) -> str:
    """The PCIe root complex above a PCI device, as pci0000:00; empty if unknown."""
    try:
        way = _device(root, bus_id).readlink()
    except OSError:
        return ""
    return next((part for part in way.parts if re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", part)), "")


def address(bus_id: str) -> str:
    """A bus id of NVML as the kernel writes it: four digits of the domain, small letters."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def machine(root: Path) -> str:
    """The product name of the machine, empty if unknown."""
    return _text(root / "sys/class/dmi/id/product_name") or ""


def _device(root: Path, bus_id: str) -> Path:
    return root / "sys/bus/pci/devices" / address(bus_id)


def _hca(folder: Path, gpu_direct: bool) -> Hca:
    ports = [folder / "ports" / name for name in _names(folder / "ports")]
    states = [(_text(port / "state") or "").partition(":")[2].strip() for port in ports]
    active = [port for port, state in zip(ports, states, strict=True) if state == "ACTIVE"]
    return Hca(
        name=folder.name,
        model=_text(folder / "hca_type") or "",
        ports=len(active),
        gbps=max((_number(port / "rate", 0) for port in active), default=0),
        state="ACTIVE" if active else next(iter(states), ""),
        numa_node=_number(folder / "device/numa_node", -1),
        gpu_direct=gpu_direct,
    )


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None


def _number(file: Path, default: int) -> int:
    """The whole number at the beginning of a file, for example 400 in "400 Gb/sec (4X NDR)"."""
    found = re.match(r"-?\d+", _text(file) or "")
    return int(found.group()) if found else default
