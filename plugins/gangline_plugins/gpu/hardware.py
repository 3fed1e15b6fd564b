"""What a GpuNodeStatus says, checked and in the form in which the device table keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gangline.wire import Fabric, GpuDevice, GpuNodeStatus, Hca
from gangline_plugins.gpu.links import MOST_DEVICES, LinkClass, LinkClasses, mask_of

NO_HEARTBEAT = float("inf")


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance."""

    device: int
    uuid: str
    profile: str


@dataclass(frozen=True, slots=True, eq=False)
class Hardware:
    """The GPUs of a node; sets of devices are masks, lists have one entry per id, 0 to 15."""

    links: LinkClass
    present: int
    healthy: int
    unknown: int
    mig: int
    """Devices that are cut into MIG instances and cannot be had as a whole."""
    uuids: tuple[str, ...]
    memory: tuple[int, ...]
    """MiB."""
    instances: tuple[Instance, ...]
    ports: int
    """RDMA ports that are up."""
    hcas: frozenset[str]
    """Names and models of the RDMA adapters that are up."""
    cu_file: bool


def read(status: GpuNodeStatus, classes: LinkClasses) -> Hardware | str:
    """The GPUs of a node, or why the report cannot be used."""
    node, devices = status.metadata.name, status.status.devices
    if status.spec.node_name and status.spec.node_name != node:
        return f"GpuNodeStatus {node}: spec.nodeName is {status.spec.node_name}"
    seen = set()
    for number, device in enumerate(devices):
        where = f"GpuNodeStatus {node}: status.devices[{number}]"
        if not 0 <= device.id < MOST_DEVICES:
            return f"{where}.id is {device.id}; it must be 0 to {MOST_DEVICES - 1}"
        if device.id in seen:
            return f"{where}.id is {device.id}, as that of an earlier device"
        seen.add(device.id)
    return _hardware(devices, status.status.fabric or Fabric(), classes)


def heartbeat(status: GpuNodeStatus) -> float:
    """When the agent reported, in seconds since the epoch; NO_HEARTBEAT where it does not say, 0 for no time at all."""
    if not status.status.heartbeat_time:
        return NO_HEARTBEAT
    try:
        return datetime.fromisoformat(status.status.heartbeat_time).timestamp()
    except ValueError:
        return 0.0


def profile_name(name: str) -> str:
    """A MIG profile as resource names and claims may both write it."""
    return name.removeprefix("MIG ").replace("+", ".").lower()


def _hardware(devices: list[GpuDevice], fabric: Fabric, classes: LinkClasses) -> Hardware:
    uuids, memory = [""] * MOST_DEVICES, [0] * MOST_DEVICES
    for device in devices:
        uuids[device.id], memory[device.id] = device.uuid, device.memory_mi_b
    active = [hca for hca in fabric.hcas if is_up(hca)]
    return Hardware(
        links=classes.intern(devices),
        present=mask_of(d.id for d in devices),
        healthy=mask_of(d.id for d in devices if d.health == "Healthy"),
        unknown=mask_of(d.id for d in devices if d.health == "Unknown"),
        mig=mask_of(d.id for d in devices if d.mig_devices),
        uuids=tuple(uuids),
        memory=tuple(memory),
        instances=tuple(
            Instance(d.id, m.uuid, profile_name(m.profile))
            for d in sorted(devices, key=lambda d: d.id)
            for m in d.mig_devices
            if m.uuid  # a pod can be shown an instance by its UUID only
        ),
        ports=sum(hca.ports for hca in active),
        hcas=frozenset(name for hca in active for name in (hca.name, hca.model) if name),
        cu_file=fabric.cu_file_enabled,
    )


def is_up(hca: Hca) -> bool:
    """Whether an adapter can be used; one that says nothing of its state can."""
    state = hca.state.lower()
    return not state or ("active" in state and "inactive" not in state) or state.endswith("up")
