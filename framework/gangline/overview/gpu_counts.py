"""Counts, for each node, the GPUs that pods hold without requesting them, and those that no device plugin offers.

The counts are kept, and only nodes that have changed since are counted again: looking at all pods of a large cluster
every few seconds would keep the scheduler from its decisions. For the same reason a caller may count a few nodes at a
time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from gangline.api.plugin import State
from gangline.dra.units import DRIVERS
from gangline.kube.resources import GPU_NODE_STATUSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.model import Node
from gangline.state.node_view import Int64Column, NodeView
from gangline.state.pods import PodInfo
from gangline.wire import texts
from gangline.wire.custom_resources import ALLOCATED, AMD_GPU, GPU

GPUS = (GPU, AMD_GPU)
"""Resources whose amounts are whole GPUs."""
_DEVICE = re.compile(r"gpu-(\d{1,3})(?:-mig-.*)?")
"""The name of a device that is a GPU, or a partition of a GPU (MIG)."""
_MOST_IDS = 256

Device = int | str
"""The id of a GPU, or the name of a device that has no such id."""
OnNodes = tuple[tuple[str, Device], ...]
"""Devices, each with the name of its node."""


class GpuCounts:
    """One value for each row of the nodes; shared by all who ask, and brought up to date by `update`."""

    def __init__(self, cluster: State) -> None:
        self._cluster = cluster
        self._position = -1
        self._changed: set[str] = set()
        """The nodes of which a claim, slice or report has changed."""
        self._stale: set[int] = set()
        """The rows that are to be counted."""
        self._rows: dict[str, int] = {}
        self.beyond = np.zeros(0, dtype=np.int64)
        """Devices that pods hold without requesting them, and that no pod which requests GPUs holds."""
        self.reported = np.zeros(0, dtype=np.int64)
        """Devices that agents report or drivers offer in ResourceSlices."""
        self._claimed = _ByNode(_claimed, self._changed)
        self._offered = _ByNode(offered_gpus, self._changed)
        cluster.follow_nodes(self)
        cluster.store(RESOURCE_CLAIMS).subscribe(self._claimed)
        cluster.store(RESOURCE_SLICES).subscribe(self._offered)
        cluster.store(GPU_NODE_STATUSES).subscribe(_ChangedNames(self._changed))

    def node_upserted(self, node: Node, row: int) -> None:
        """The node has this row. The log of changes says that the row is to be counted."""
        self._rows[node.metadata.name] = row

    def node_removed(self, name: str, row: int) -> None:
        """The node has no row any more."""
        self._rows.pop(name, None)

    def update(self, nodes: NodeView, most: int | None = None) -> bool:
        """Count the nodes that have changed since they were counted, or at most so many of them; `nodes` are all nodes.

        Returns whether all nodes are counted.
        """
        self._note_changes(nodes)
        stale = self._stale
        for _ in range(len(stale) if most is None else min(most, len(stale))):  # those that have changed
            row = stale.pop()
            name = nodes.name_of(row)  # `names` copies all names, for each slice
            by_request, by_claim = self._held(name, nodes.pods(row).values())
            self.beyond[row] = len(by_claim - by_request)
            self.reported[row] = self._devices_of(name)
        return not stale

    def _note_changes(self, nodes: NodeView) -> None:
        """Note which rows are to be counted."""
        size = len(nodes)
        changed = nodes.changes.since(self._position, size) if self._position >= 0 else None
        self._position = nodes.changes.position
        if len(self.beyond) != size:
            self.beyond, self.reported = _resized(self.beyond, size), _resized(self.reported, size)
        self._stale.update(range(size) if changed is None else changed[0].tolist())
        self._stale.update(self._rows[name] for name in self._changed if name in self._rows)
        self._changed.clear()

    def ids(self, nodes: NodeView) -> dict[int, frozenset[int]]:
        """For each row the ids of the devices that pods hold, as far as they are known; looks at every pod."""
        found: dict[int, frozenset[int]] = {}
        for row, name in enumerate(nodes.names):  # there are no columns of ids
            held = set[Device]().union(*self._held(name, nodes.pods(row).values()))
            if held:
                found[row] = frozenset([id for id in held if isinstance(id, int)])
        return found

    def _held(self, node: str, pods: Iterable[PodInfo]) -> tuple[set[Device], set[Device]]:
        """The devices on a node: of pods that request GPUs, and of pods that do not."""
        by_request: set[Device] = set()
        by_claim: set[Device] = {*self._claimed.on.get(node, ())}
        for pod in pods:
            if ALLOCATED in pod.annotations:
                (by_request if requested_gpus(pod) else by_claim).update(device_ids(pod.annotations))
        return by_request, by_claim

    def _devices_of(self, name: str) -> int:
        report: Any = self._cluster.store(GPU_NODE_STATUSES).get(name)
        reported = len(report.status.devices) if report is not None else 0
        return min(_MOST_IDS, max(reported, len(self._offered.on.get(name, ()))))


class _ByNode:
    """The devices that objects of one kind name, by node."""

    def __init__(self, read: Callable[[Any], OnNodes], changed: set[str]) -> None:
        self._read = read
        self._changed = changed
        self._of: dict[tuple[str, str], OnNodes] = {}
        """What each object names, by namespace and name."""
        self.on: dict[str, Counter[Device]] = {}
        """How many objects name each device of a node."""

    def on_upsert(self, obj: Any) -> None:
        """See `StoreListener`."""
        key, named = (obj.metadata.namespace, obj.metadata.name), self._read(obj)
        before = self._of.get(key, ())
        if named == before:
            return
        self._count(before, -1)
        self._count(named, 1)
        if named:
            self._of[key] = named
        else:
            del self._of[key]

    def on_remove(self, obj: Any) -> None:
        """See `StoreListener`."""
        self._count(self._of.pop((obj.metadata.namespace, obj.metadata.name), ()), -1)

    def _count(self, named: OnNodes, sign: int) -> None:
        for node, device in named:
            devices = self.on.setdefault(node, Counter())
            devices[device] += sign
            if not devices[device]:
                del devices[device]
            if not devices:
                del self.on[node]
            self._changed.add(node)


class _ChangedNames:
    """Notes the objects of a kind that have changed, by name."""

    def __init__(self, changed: set[str]) -> None:
        self._changed = changed

    def on_upsert(self, obj: Any) -> None:
        """See `StoreListener`."""
        self._changed.add(obj.metadata.name)

    on_remove = on_upsert


def device_ids(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """The device ids in the annotations of a bound pod; invalid ones are left out."""
    return texts.device_ids(annotations.get(ALLOCATED, ""))


def requested_gpus(pod: PodInfo) -> int:
    """The whole GPUs that a pod requests; 0 if its requests do not say how many GPUs it takes."""
    real = pod.cls.requests.real
    number = 0
    for gpu in GPUS:  # without a generator, because this is asked for every pod
        number += real.get(gpu, 0)
    return number


def _claimed(claim: Any) -> OnNodes:
    """The devices that a claim has, but for those that it may only look after."""
    results: Iterable[Any] = claim.status.results
    ours = (each for each in results if each.driver.startswith(DRIVERS) and not each.admin_access)
    return tuple([(each.pool, _device(each.device)) for each in ours])


def offered_gpus(found: Any) -> OnNodes:
    """The GPUs that a ResourceSlice of one node offers."""
    spec = found.spec
    if not spec.node_name or not spec.driver.startswith(DRIVERS):
        return ()
    named = (_device(device.name) for device in spec.devices[:_MOST_IDS])
    return tuple([(spec.node_name, each) for each in dict.fromkeys(named) if isinstance(each, int)])


def _device(name: str) -> Device:
    number = _DEVICE.fullmatch(name)
    return int(number[1]) if number else name


def _resized(column: Int64Column, size: int) -> Int64Column:
    found = np.zeros(size, dtype=np.int64)
    found[: len(column)] = column[:size]
    return found
