"""Packs what a node offers into the ResourceSlices of one pool, and compares them with those that are there.

Rules
- The pool has the name of the node; the Node owns its slices, so they go with it.
- Counters have slices of their own, as the API server demands, and come first: without them no partition is offered.
- All slices of a pool have one generation. Whatever differs, all are written again with the next generation, because a
  scheduler uses a pool only if it sees all slices of its newest generation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from msgspec.structs import replace as changed

from gangline.model import ObjectMeta, OwnerReference
from gangline.model.resource_slices import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from gangline_agent.devices import Offer

DRIVER = "gpu.gangline.dev"
"""Not gpu.nvidia.com: that driver prepares devices on the node, and its slices are its own."""
MOST_DEVICES = 128
"""Devices of a slice; with taints or counters half as many."""
MOST_COUNTER_SETS = 8
LONGEST_NAME = 253
TAINTS, COUNTERS = "taints", "counters"
"""Features that a server may lack."""

Slices = Mapping[str, ResourceSlice]
"""Slices by name."""
T = TypeVar("T")


def wanted(node: str, uid: str, offer: Offer) -> list[ResourceSlice]:
    """The slices of an offer in the order in which they are to be written, in generation 0."""
    is_larger = any(device.taints or device.consumes_counters for device in offer.devices)
    counters = _parts(offer.counters, MOST_COUNTER_SETS)
    devices = _parts(offer.devices, MOST_DEVICES // 2 if is_larger else MOST_DEVICES)
    pool = ResourcePool(name=node, resource_slice_count=len(counters) + len(devices))
    specs = {
        **{
            f"counters-{number}": ResourceSliceSpec(DRIVER, pool, node_name=node, shared_counters=part)
            for number, part in enumerate(counters)
        },
        **{
            f"devices-{number:02}": ResourceSliceSpec(DRIVER, pool, node_name=node, devices=part)
            for number, part in enumerate(devices)
        },
    }
    owner = OwnerReference(api_version="v1", kind="Node", name=node, uid=uid)
    return [
        ResourceSlice(ObjectMeta(name=_name(node, part), owner_references=[owner]), spec)
        for part, spec in specs.items()
    ]


def of_generation(slices: Iterable[ResourceSlice], generation: int) -> list[ResourceSlice]:
    """The same slices in another generation of their pool."""
    return [
        changed(each, spec=changed(each.spec, pool=changed(each.spec.pool, generation=generation))) for each in slices
    ]


def generation_of(seen: Slices) -> int:
    """The newest generation among slices; 0 without any."""
    return max((each.spec.pool.generation for each in seen.values()), default=0)


def differ(slices: Iterable[ResourceSlice], seen: Slices) -> bool:
    """Whether other slices are there, or they say something else, or they are of several generations."""
    expected = {each.metadata.name: each for each in of_generation(with_times(slices, seen), generation_of(seen))}
    return expected.keys() != seen.keys() or any(
        each.spec != seen[name].spec or not _owners(each) <= _owners(seen[name]) for name, each in expected.items()
    )


def with_times(slices: Iterable[ResourceSlice], seen: Slices) -> list[ResourceSlice]:
    """The slices, with the times at which devices got the taints that they have already."""
    since = {
        (device.name, taint.key, taint.effect, taint.value): taint.time_added
        for each in seen.values()
        for device in each.spec.devices
        for taint in device.taints
    }

    def with_time(device: Device) -> Device:
        taints = [
            changed(each, time_added=since.get((device.name, each.key, each.effect, each.value)))
            for each in device.taints
        ]
        return changed(device, taints=taints)

    return [
        changed(each, spec=changed(each.spec, devices=[with_time(device) for device in each.spec.devices]))
        for each in slices
    ]


def lost(written: ResourceSlice, stored: ResourceSlice) -> str:
    """The feature of which the API server has kept nothing, because it does not have it: counters, taints, or empty."""
    if written.spec.shared_counters and not stored.spec.shared_counters:
        return COUNTERS
    has_taints = any(device.taints for device in written.spec.devices)
    return TAINTS if has_taints and not any(device.taints for device in stored.spec.devices) else ""


def without(offer: Offer, features: Iterable[str]) -> Offer:
    """An offer for a server that does not have these features.

    Without taints it has no device with a taint, without counters no part of a GPU that could be cut.
    """
    devices = offer.devices
    if TAINTS in features:
        devices = tuple(device for device in devices if not device.taints)
    if COUNTERS not in features:
        return replace(offer, devices=devices)
    whole = (device for device in devices if not device.consumes_counters or device.attributes["type"].string == "gpu")
    return Offer(tuple(changed(device, consumes_counters=[]) for device in whole))


def _parts(values: Sequence[T], most: int) -> list[list[T]]:
    return [list(values[start : start + most]) for start in range(0, len(values), most)]


def _owners(each: ResourceSlice) -> set[tuple[str, str]]:
    return {(owner.kind, owner.uid) for owner in each.metadata.owner_references}


def _name(node: str, part: str) -> str:
    """The name of a slice; that of a node with a very long name is cut, and a hash keeps it unique."""
    name = f"{node}-{DRIVER}-{part}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{node[:200].rstrip('.-')}-{hashlib.sha256(node.encode()).hexdigest()[:12]}-{DRIVER}-{part}"
