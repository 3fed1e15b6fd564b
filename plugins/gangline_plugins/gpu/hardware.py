"""Checks a GpuNodeStatus and converts it into the form that the device table keeps."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gangline import custom_resources, moments
from gangline_plugins.gpu.links import MOST_CLASSES, MOST_DEVICES, LinkClass, LinkClasses, mask_of

NO_HEARTBEAT = float("inf")
MOST_PORTS = 1024
"""The most RDMA ports of a node."""
MOST_MEMORY = 2**31 - 1
"""The most MiB of a device."""
MOST_GBPS = 2**31 - 1
"""The most GB/s of a link."""
MOST_INSTANCES = 64
"""The most MIG instances of a device; present devices have at most 7."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance."""

    device: int
    uuid: str
    profile: str


@dataclass(frozen=True, slots=True, eq=False)
class Hardware:
    """The GPUs of a node. Sets of devices are masks; lists have one entry per id, 0 to 15."""

    links: LinkClass
    present: int
    healthy: int
    unknown: int
    mig: int
    """Devices that are divided into MIG instances and cannot be allocated as a whole."""
    uuids: tuple[str, ...]
    memory: tuple[int, ...]
    """MiB of each device."""
    instances: tuple[Instance, ...]
    ports: int
    """RDMA ports that are up."""
    hcas: frozenset[str]
    """Names and models of the RDMA adapters that are up."""
    cu_file: bool


def read(status: custom_resources.GpuNodeStatus, classes: LinkClasses) -> Hardware | str:
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
        if why := _wrong_with(device):
            return f"{where}.{why}"
    ports = sum(hca.ports for hca in (status.status.fabric or custom_resources.Fabric()).hcas)
    if not 0 <= ports <= MOST_PORTS:
        return f"GpuNodeStatus {node}: status.fabric.hcas have {ports} ports; 0 to {MOST_PORTS} are read"
    return _hardware(devices, status.status.fabric or custom_resources.Fabric(), classes)


def heartbeat(status: custom_resources.GpuNodeStatus) -> float:
    """The time of the report, in seconds since the epoch; NO_HEARTBEAT if it has none, 0 if its time is unreadable."""
    if not status.status.heartbeat_time:
        return NO_HEARTBEAT
    try:
        return moments.moment(status.status.heartbeat_time)
    except ValueError:
        return 0.0


def profile_name(name: str) -> str:
    """A MIG profile's name in one form, as resource names and claims write it differently."""
    return name.removeprefix("MIG ").replace("+", ".").lower()


def _wrong_with(device: custom_resources.GpuDevice) -> str:
    """Which field of a device has an impossible value; "" if none has."""
    if not 0 <= device.memory_mi_b <= MOST_MEMORY:
        return f"memoryMiB is {device.memory_mi_b}; it must be 0 to {MOST_MEMORY}"
    if len(device.mig_devices) > MOST_INSTANCES:
        return f"migDevices has {len(device.mig_devices)} entries; {MOST_INSTANCES} are read"
    speeds = (device.bandwidth_gbps, *(link.gbps for link in device.links))
    if not all(0 <= gbps <= MOST_GBPS for gbps in speeds):
        return f"bandwidthGBps must be 0 to {MOST_GBPS}"
    return ""


def _hardware(
    devices: list[custom_resources.GpuDevice], fabric: custom_resources.Fabric, classes: LinkClasses
) -> Hardware | str:
    uuids, memory = [""] * MOST_DEVICES, [0] * MOST_DEVICES
    for device in devices:
        uuids[device.id], memory[device.id] = device.uuid, device.memory_mi_b
    links = classes.intern(devices)
    if links is None:
        return f"the cluster has more than {MOST_CLASSES} kinds of links between GPUs"
    active = [hca for hca in fabric.hcas if is_up(hca)]
    return Hardware(
        links=links,
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


def is_up(hca: custom_resources.Hca) -> bool:
    """Whether an adapter can be used; an adapter without a state can."""
    state = hca.state.lower()
    return not state or ("active" in state and "inactive" not in state) or state.endswith("up")


def says_the_same(before: custom_resources.GpuNodeStatus, after: custom_resources.GpuNodeStatus) -> bool:
    """Whether two reports differ at most in their time and in the pods that the agent saw on the devices."""
    return (
        before.spec == after.spec
        and before.status.fabric == after.status.fabric
        and _are_same(before.status.devices, after.status.devices)
    )


def _are_same(before: list[custom_resources.GpuDevice], after: list[custom_resources.GpuDevice]) -> bool:
    return before == after or _without_users(before) == _without_users(after)


def _without_users(devices: list[custom_resources.GpuDevice]) -> list[custom_resources.GpuDevice]:
    return [msgspec.structs.replace(device, in_use_by=[]) for device in devices]
