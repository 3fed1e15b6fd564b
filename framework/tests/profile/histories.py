"""Random histories of the objects that plugins read: nodes, pods, claims, devices, and rents of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from gangline import Changes, NodeView, model
from gangline.kube.resources import (
    DEVICE_CLASSES,
    GPU_CLAIMS,
    GPU_NODE_STATUSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from gangline.state.cache import Cache
from gangline.state.slots import Slot
from gangline.testing import FakeHandle, cluster
from gangline.testing import random_clusters as some
from gangline.wire.custom_resources import (
    ClaimDevices,
    ClaimSelector,
    GpuClaim,
    GpuClaimSpec,
    GpuNodeStatus,
    GpuNodeStatusSpec,
    GpuNodeStatusStatus,
)
from gangline_plugins.gpu.named_hardware import devices

from . import differing_pods as differing

DRIVER = "gpu.example.com"


class Rents:
    """Which owner has rented each node; shared by all plugins, and written by tests."""

    def __init__(self) -> None:
        self.changed = Changes()
        self._owners = np.full(1024, -1)

    def rent(self, row: int, owner: int) -> None:
        self._owners[row] = owner
        self.changed.note(row)

    def of(self, nodes: NodeView) -> Any:
        return self._owners[nodes.index]


def claims() -> st.SearchStrategy[GpuClaim]:
    def claim(number: int, count: int, label: str) -> GpuClaim:
        selector = ClaimSelector({"rack": label}) if label else None
        spec = GpuClaimSpec(devices=ClaimDevices(count=count), selector=selector)
        return GpuClaim(model.ObjectMeta(name=f"c{number}", namespace="default"), spec)

    return st.builds(claim, st.integers(0, 2), st.sampled_from([0, 1, 2, 4]), st.sampled_from(["", "a"]))


def reports() -> st.SearchStrategy[GpuNodeStatus]:
    def report(name: str, kind: str, ill: int, minute: int) -> GpuNodeStatus:
        found = [
            msgspec.structs.replace(each, health="Unhealthy" if each.id < ill else each.health)
            for each in devices(kind)
        ]
        heartbeat = f"1970-01-01T00:{minute:02}:00Z"
        status = GpuNodeStatusStatus(total=len(found), devices=found, heartbeat_time=heartbeat)
        return GpuNodeStatus(model.ObjectMeta(name=name), GpuNodeStatusSpec(name), status)

    kinds = st.sampled_from(["hgx-h100", "pcie-4", "pcie-bridged-8"])
    return st.builds(report, st.sampled_from(some.NODES), kinds, st.integers(0, 3), st.integers(14, 24))


def resource_claims() -> st.SearchStrategy[model.ResourceClaim]:
    """Claims for devices of one class; some have been given a device of a node."""

    def claim(name: str, version: int, count: int, node: str) -> model.ResourceClaim:
        asked = model.DeviceRequest("gpu", model.ExactDeviceRequest("gpu", allocation_mode="ExactCount", count=count))
        status = model.ResourceClaimStatus()
        if node:
            only = model.Requirement("metadata.name", "In", [node])
            status.allocation = model.ResourceClaimAllocation(
                model.AllocatedDevices([model.AllocatedDevice(DRIVER, node, "d0", request="gpu")]),
                model.NodeSelector([model.NodeSelectorTerm(match_fields=[only])]),
            )
        metadata = model.ObjectMeta(name, "default", uid=name, resource_version=f"{version}")
        return model.ResourceClaim(metadata, model.ResourceClaimSpec(model.DeviceClaim([asked])), status)

    names, nodes = st.sampled_from(differing.CLAIMS), st.sampled_from(["", *some.NODES[:2]])
    return st.builds(claim, names, st.integers(1, 1000), st.integers(1, 2), nodes)


def slices() -> st.SearchStrategy[model.ResourceSlice]:
    def offered(node: str, count: int) -> model.ResourceSlice:
        found = [model.Device(f"d{number}") for number in range(count)]
        spec = model.ResourceSliceSpec(DRIVER, model.ResourcePool(node, 1, 1), node_name=node, devices=found)
        return model.ResourceSlice(model.ObjectMeta(node), spec)

    return st.builds(offered, st.sampled_from(some.NODES), st.integers(0, 3))


def relabelling() -> st.SearchStrategy[some.Step]:
    """Labels and annotations of a pod on a node change, and nothing else."""

    def change(name: str, app: str, annotations: dict[str, str]) -> some.Step:
        def step(cache: Cache) -> None:
            if (pod := cache.pods.get(f"pod-default-{name}")) is not None:
                labels, slot = cache.interner.labels({"app": app}), Slot(node_name=pod.node_name)
                cache.upsert_pod(msgspec.structs.replace(pod, labels=labels, annotations=annotations, slot=slot))

        return step

    annotations = st.dictionaries(st.just("devices"), st.sampled_from("01"), max_size=1)
    return st.builds(change, st.sampled_from(some.PODS), st.sampled_from("xy"), annotations)


Step = Callable[[Cache, FakeHandle], None]


def steps() -> st.SearchStrategy[Step]:
    def rent(row: int, owner: int) -> Step:
        return lambda cache, handle: cache.shared(Rents).rent(row, owner)

    return st.one_of(
        some.steps().map(lambda step: lambda cache, handle: step(cache)),
        relabelling().map(lambda step: lambda cache, handle: step(cache)),
        differing.placed().map(lambda pod: lambda cache, handle: cache.upsert_pod(cache.record(pod))),
        claims().map(lambda claim: lambda cache, handle: cache.store(GPU_CLAIMS).upsert(claim)),
        reports().map(lambda report: lambda cache, handle: cache.store(GPU_NODE_STATUSES).upsert(report)),
        resource_claims().map(lambda claim: lambda cache, handle: cache.store(RESOURCE_CLAIMS).upsert(claim)),
        slices().map(lambda each: lambda cache, handle: cache.store(RESOURCE_SLICES).upsert(each)),
        st.builds(rent, st.integers(0, 4), st.integers(-1, 1)),
        st.sampled_from([1.0, 200.0]).map(lambda seconds: lambda cache, handle: handle.fake_clock.advance(seconds)),
    )


def begun(nodes: list[model.Node]) -> Cache:
    """A cluster with a class of devices."""
    cache = cluster(nodes)
    selector = model.DeviceSelector(model.CelDeviceSelector(f'device.driver == "{DRIVER}"'))
    cache.store(DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu"), model.DeviceClassSpec([selector])))
    return cache
