"""Random histories of what plugins read: nodes, pods, claims, devices, volumes, moved pods, and rents of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from gangline import Changes, NodeView, model
from gangline.kube.resources import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    GPU_CLAIMS,
    GPU_NODE_STATUSES,
    PVCS,
    PVS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
)
from gangline.state.cache import Cache
from gangline.state.slots import Slot
from gangline.testing import GPU, FakeHandle, cluster
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
from gangline_plugins.defragmentation.record import CONFIG_MAP, HeldRoom, Record, written
from gangline_plugins.gpu.named_hardware import devices

from . import differing_pods as differing

DRIVER = "gpu.example.com"
SCRATCH = ("base", "volumes", "labels", "annotations", "owner", "map")
"""Pods of a family whose ephemeral volumes have claims."""
VOLUMES = {"of-a": "a", "also-of-a": "a", "of-b": "b"}
"""By name of a volume the rack whose nodes can reach it."""


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


def scratch_claims() -> st.SearchStrategy[list[model.PersistentVolumeClaim]]:
    """Claims for the ephemeral volumes of pods, some of which are bound."""

    def claim(pod: str, volume: str) -> model.PersistentVolumeClaim:
        owner = model.OwnerReference("Pod", pod, f"waiting-{pod}", "v1", controller=True)
        bound = {"pv.kubernetes.io/bind-completed": "yes"} if volume else None
        metadata = model.ObjectMeta(f"{pod}-data", "default", annotations=bound, owner_references=[owner])
        return model.PersistentVolumeClaim(
            metadata, model.PersistentVolumeClaimSpec(volume_name=volume, storage_class_name="local")
        )

    def claims(volumes: Sequence[str]) -> list[model.PersistentVolumeClaim]:
        return list(map(claim, SCRATCH, volumes))

    volumes = st.lists(st.sampled_from(["", *VOLUMES]), min_size=len(SCRATCH), max_size=len(SCRATCH))
    return st.builds(claims, volumes)


def moves() -> st.SearchStrategy[model.ConfigMap]:
    """Room that is kept for the pods of a controller, and nodes that are kept for nobody."""
    numbers = count()

    def record(until: float, node: str, owner: str, nodes: list[str]) -> model.ConfigMap:
        holds = [HeldRoom(f"default/{owner}", node, {GPU: 4, "cpu": 2000}, [])]
        made = Record(f"move-{next(numbers)}", until, "default-scheduler", "", "", nodes, holds)
        return model.ConfigMap(model.ObjectMeta(CONFIG_MAP, "kube-system"), written(made))

    names = st.sampled_from(some.NODES)
    kept = st.lists(names, max_size=1)
    return st.builds(record, st.sampled_from([1100.0, 9000.0]), names, st.sampled_from("01"), kept)


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
        scratch_claims().map(lambda claims: lambda cache, handle: _all_of(cache, claims)),
        moves().map(lambda record: lambda cache, handle: cache.store(CONFIG_MAPS).upsert(record)),
        slices().map(lambda each: lambda cache, handle: cache.store(RESOURCE_SLICES).upsert(each)),
        st.builds(rent, st.integers(0, 4), st.integers(-1, 1)),
        st.sampled_from([1.0, 200.0]).map(lambda seconds: lambda cache, handle: handle.fake_clock.advance(seconds)),
    )


def _all_of(cache: Cache, claims: list[model.PersistentVolumeClaim]) -> None:
    for claim in claims:
        cache.store(PVCS).upsert(claim)


def _volume(name: str, rack: str) -> model.PersistentVolume:
    term = model.NodeSelectorTerm(match_expressions=[model.Requirement("rack", "In", [rack])])
    spec = model.PersistentVolumeSpec(
        capacity={"storage": "1Gi"},
        storage_class_name="local",
        node_affinity=model.VolumeNodeAffinity(model.NodeSelector([term])),
    )
    return model.PersistentVolume(model.ObjectMeta(name), spec)


def begun(nodes: list[model.Node]) -> Cache:
    """A cluster with a class of devices, and volumes that the nodes of one rack can reach."""
    cache = cluster(nodes)
    local = model.StorageClass(model.ObjectMeta("local"), "none", volume_binding_mode="WaitForFirstConsumer")
    cache.store(STORAGE_CLASSES).upsert(local)
    for name, rack in VOLUMES.items():
        cache.store(PVS).upsert(_volume(name, rack))
    selector = model.DeviceSelector(model.CelDeviceSelector(f'device.driver == "{DRIVER}"'))
    cache.store(DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu"), model.DeviceClassSpec([selector])))
    return cache
