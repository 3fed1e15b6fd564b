"""Slices, classes and claims for tests, and a stand-in for the expressions of selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.dra import Allocator, PodAllocator, Selectors, SliceTable, Standing, Usage
from gangline.errors import GanglineError
from gangline.model.resource_claims import ResourceClaim
from gangline.model.resource_slices import DeviceClass, ResourceSlice
from gangline.testing import cluster, make_node

GPU = "gpu.example.com"
CLASSES = {
    "gpu": {"selectors": [{"cel": {"expression": f"driver={GPU}"}}]},
    "any": {},
    "configured": {"config": [{"opaque": {"driver": GPU, "parameters": {"mode": "x"}}}]},
}


class Failure(GanglineError):
    """An expression fails."""


class Equality:
    """Stands for an expression: ``driver=VALUE`` or ``NAME=VALUE``; fails if the device has no attribute NAME."""

    def __init__(self, expression: str) -> None:
        self._name, equals, self._value = expression.partition("=")
        if not equals:
            raise Failure(f"no expression: {expression}")

    @property
    def reads(self) -> frozenset[tuple[str, ...]] | None:
        return frozenset((("driver",),)) if self._name == "driver" else None

    def __call__(self, device: Mapping[str, Any]) -> bool:
        if self._name == "driver":
            return bool(device["driver"] == self._value)
        if self._name not in device["attributes"]:
            raise Failure(f"no such key: {self._name}")
        return bool(device["attributes"][self._name]["string"] == self._value)


def device(name: str, **fields: Any) -> dict[str, Any]:
    """A device; attributes are given as texts."""
    attributes = {key: {"string": value} for key, value in fields.pop("attributes", {}).items()}
    return {"name": name, "attributes": attributes, **fields}


def offer(
    name: str, devices: list[dict[str, Any]], *, slices: int = 1, generation: int = 1, **spec: Any
) -> ResourceSlice:
    """A slice; its pool is called `node-pool` unless the spec says otherwise."""
    pool = {"name": spec.pop("pool", "node-pool"), "generation": generation, "resourceSliceCount": slices}
    if not {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys():
        spec["nodeName"] = "a"
    given = {"driver": GPU, **spec, "pool": pool, "devices": devices}
    return msgspec.convert({"metadata": {"name": name}, "spec": given}, ResourceSlice)


def exactly(count: int = 1, device_class: str = "gpu", **fields: Any) -> dict[str, Any]:
    """The field `exactly` of a request: `count` devices of a class."""
    return {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count, **fields}


def claim(*requests: dict[str, Any], **devices: Any) -> ResourceClaim:
    """A claim of requests r0, r1, ...; lists of alternatives are given under firstAvailable."""
    named = [
        {"name": f"r{i}", **(each if "firstAvailable" in each else {"exactly": each})}
        for i, each in enumerate(requests)
    ]
    spec = {"devices": {"requests": named, **devices}}
    return msgspec.convert({"metadata": {"name": "c", "namespace": "default"}, "spec": spec}, ResourceClaim)


def allocated(*names: str, pool: str = "node-pool", **result: Any) -> ResourceClaim:
    """A claim that has these devices."""
    results = [{"request": "r0", "driver": GPU, "pool": pool, "device": name, **result} for name in names]
    status = {"allocation": {"devices": {"results": results}}}
    return msgspec.convert({"metadata": {"name": "t", "namespace": "default"}, "status": status}, ResourceClaim)


def ask(
    slices: list[ResourceSlice], claims: list[ResourceClaim], taken: list[ResourceClaim] | None = None, nodes: str = "a"
) -> PodAllocator:
    """The allocator for the claims of a pod, on a cluster with a node for each letter of `nodes`."""
    view = cluster([make_node(name, labels={"zone": name}) for name in nodes]).nodes.view()
    table = SliceTable(slices, view)
    classes = {
        name: msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass) for name, spec in CLASSES.items()
    }
    return Allocator(Standing(table, Usage(taken or [])), classes, Selectors(table, Equality), lambda: "share").ask(
        claims
    )


def names(pod: PodAllocator, row: int = 0) -> list[str] | str | None:
    """The names of the devices that the node in this row gives; the error if there is one; None if it gives none."""
    verdict = pod.on(row, "abcdefgh"[row])
    if verdict.error:
        return verdict.error
    if verdict.allocations is None:
        return None
    return [result.device for each in verdict.allocations for result in each.devices.results]
