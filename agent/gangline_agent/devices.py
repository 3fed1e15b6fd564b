"""Makes the devices of a node, as ResourceSlices offer them, from a reading.

Rules
- Attributes have the names that NVIDIA's driver gives them, so selectors for the two differ only in the domain.
- What is not known, or has no place in an attribute, is left out.
- A GPU in MIG mode is offered as the instances that it has. Instances that it could have are offered only if partitions
  are asked for, because nobody would make them on a real GPU (`partitions`).
- An unhealthy GPU has a taint, and so have its instances. The taint keeps new pods away. Kubernetes leaves the pods
  that are there; the scheduler replaces the members of gangs among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gangline.model.resource_slices import (
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
)
from gangline.wire.custom_resources import UNHEALTHY
from gangline_agent import fabric, inventory, labels, partitions
from gangline_agent.readings import Gpu, Reading

STANDARD = "resource.kubernetes.io"
"""The domain of the attributes that mean the same for all drivers."""
LONGEST = 64
"""Characters that the text of an attribute may have."""

Attributes = Mapping[str, DeviceAttribute | None]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node offers: its devices in the order in which they are tried, and what partitions of a GPU share."""

    devices: tuple[Device, ...] = ()
    counters: tuple[CounterSet, ...] = ()


NOTHING = Offer()


def of_reading(reading: Reading, with_partitions: bool = False) -> Offer:
    """The devices of a node with these GPUs, in the order of their ids."""
    islands = inventory.islands(reading.gpus)
    offers = []
    for gpu in sorted(reading.gpus, key=lambda gpu: gpu.id):
        common = _common(gpu, reading, islands[gpu.id])
        cut = partitions.of_product(gpu.product) if with_partitions and not gpu.mig else ()
        if gpu.mig:
            offers.append(Offer(tuple(_instances(gpu, common))))
        else:
            whole = _whole(gpu, common)
            offers.append(_partitioned(gpu, whole, common, cut) if cut else Offer((whole,)))
    return Offer(
        tuple(device for offer in offers for device in offer.devices),
        tuple(counters for offer in offers for counters in offer.counters),
    )


def _whole(gpu: Gpu, common: Attributes) -> Device:
    own = {"type": _text("gpu"), "uuid": _text(gpu.uuid)}
    return _device(f"gpu-{gpu.id}", {**own, **common}, {"memory": _memory(gpu.memory_mib)}, gpu)


def _instances(gpu: Gpu, common: Attributes) -> list[Device]:
    """The MIG instances of a GPU; an instance keeps its name while it exists."""
    made = []
    for instance in gpu.mig:
        name = re.sub(r"[^a-z0-9-]+", "-", f"gpu-{gpu.id}-{instance.uuid.lower()}")[:63].strip("-")
        own = {"uuid": _text(instance.uuid), **_of_part(gpu, instance.profile)}
        made.append(_device(name, {**own, **common}, {"memory": _memory(instance.memory_mib)}, gpu))
    return made


def _partitioned(gpu: Gpu, whole: Device, common: Attributes, cut: tuple[partitions.Partition, ...]) -> Offer:
    """A GPU as a whole and in parts, of which only those can be taken together that fit on the GPU together."""
    shared = f"gpu-{gpu.id}"
    counters = partitions.counters(cut)
    whole.consumes_counters = [partitions.consumed(shared, counters)]
    parts = []
    for each in cut:
        capacity = {"memory": _memory(each.memory_mib), "multiprocessors": DeviceCapacity(str(each.multiprocessors))}
        part = _device(f"gpu-{gpu.id}-mig-{each.name}", {**_of_part(gpu, each.profile), **common}, capacity, gpu)
        part.consumes_counters = [partitions.consumed(shared, partitions.amounts(each))]
        parts.append(part)
    return Offer((whole, *parts), (CounterSet(shared, counters),))


def _of_part(gpu: Gpu, profile: str) -> Attributes:
    return {"type": _text("mig"), "parentUUID": _text(gpu.uuid), "profile": _text(profile)}


def _device(name: str, attributes: Attributes, capacity: Mapping[str, DeviceCapacity | None], gpu: Gpu) -> Device:
    return Device(
        name=name,
        attributes={key: value for key, value in attributes.items() if value is not None},
        capacity={key: value for key, value in capacity.items() if value is not None},
        taints=[DeviceTaint(UNHEALTHY, "NoSchedule")] if gpu.problems else [],
    )


def _common(gpu: Gpu, reading: Reading, island: str) -> dict[str, DeviceAttribute | None]:
    """What is known of a GPU and holds for its parts as well."""
    numa = gpu.numa_node
    return {
        "index": DeviceAttribute(int_=gpu.id),
        "productName": _text(gpu.product),
        "architecture": _text(labels.family(gpu.compute).replace("-", " ").title()),
        "cudaComputeCapability": _version(".".join(map(str, gpu.compute)) if gpu.compute != (0, 0) else ""),
        "cudaDriverVersion": _version(".".join(map(str, reading.cuda)) if reading.cuda != (0, 0) else ""),
        "driverVersion": _version(reading.driver),
        "island": _text(island),
        "clique": _text(gpu.clique),
        f"{STANDARD}/pciBusID": _text(fabric.address(gpu.bus_id) if gpu.bus_id else ""),
        f"{STANDARD}/pcieRoot": _text(gpu.pcie_root),
        f"{STANDARD}/numaNode": DeviceAttribute(int_=numa) if numa >= 0 else None,
    }


def _text(text: str) -> DeviceAttribute | None:
    return DeviceAttribute(string=text) if 0 < len(text) <= LONGEST else None


def _version(text: str) -> DeviceAttribute | None:
    """A version with three numbers and without leading zeros, as semantic versions have it; None for other texts."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,2}", text, re.ASCII) is None:
        return None
    numbers = [int(part) for part in text.split(".")]
    return DeviceAttribute(version=".".join(map(str, [*numbers, 0, 0][:3])))


def _memory(mib: int) -> DeviceCapacity | None:
    """So many MiB, as the API server would write them; None for an unknown memory."""
    if mib <= 0:
        return None
    suffixes = iter(("Mi", "Gi", "Ti", "Pi"))
    suffix = next(suffixes)
    while mib % 1024 == 0:
        mib, suffix = mib // 1024, next(suffixes)
    return DeviceCapacity(f"{mib}{suffix}")
