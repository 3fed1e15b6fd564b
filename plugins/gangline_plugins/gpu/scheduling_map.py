"""GpuSchedulingMap: a pod gets the node and the devices that its annotation gpu-scheduling-map names.

Rules:
- A map may take free devices, and devices of pods with maps in its own namespace: those pods share them. It takes no
  device that any other pod has by a claim, a request, a share or a lease.
- The device table counts these devices as taken as long as one of the pods is there, so other pods stay away.
- Quotas count requests, and a pod with a map needs none. So the namespace has to be allowed to use maps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import msgspec
import numpy as np

from gangline import (
    SKIP,
    Action,
    CodeColumn,
    Cycle,
    Diagnosis,
    EventHint,
    Handle,
    Narrow,
    NodeView,
    PodInfo,
    Reason,
    State,
    StateKey,
    Status,
    custom_resources,
    hookimpl,
    model,
    on,
    permissions,
    resources,
    scheduling_map,
    unschedulable,
)
from gangline_plugins.gpu.allocation import join
from gangline_plugins.gpu.believing import ids_in, metadata_of
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.hardware import says_the_same
from gangline_plugins.gpu.links import MOST_DEVICES, mask_of
from gangline_plugins.gpu.wants import MapProfiles
from gangline_plugins.telling import Teller


class MapObstacle(IntEnum):
    """Why the devices of an entry keep its pod from a node, each with its reason."""

    reason: Reason

    def __new__(cls, code: int, message: str, resolvable: bool) -> MapObstacle:
        obstacle = int.__new__(cls, code)
        obstacle._value_ = code
        obstacle.reason = Reason(message, resolvable)
        return obstacle

    TAKEN = 1, "node(s) had GPUs of the scheduling map that other pods use", True
    MISSING = 2, "node(s) didn't have the GPUs of the scheduling map", False


class GpuSchedulingMapArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of GpuSchedulingMap."""

    require_permission: bool = True
    """Whether maps count only in namespaces that allow `scheduling-map` in their annotation `gangline.dev/allow`."""


@dataclass(frozen=True, slots=True)
class MapPlace:
    """The entry of a map for one pod, and the nodes that the entry names."""

    entry: scheduling_map.MapEntry
    ids: tuple[int, ...]
    nodes: frozenset[str]


PLACE: StateKey[MapPlace] = StateKey("GpuSchedulingMap place")


class GpuSchedulingMap:
    """Narrows the nodes to the one in the pod's entry in `pre_filter`, and takes the entry's devices in `reserve`."""

    name = "GpuSchedulingMap"
    args_type = GpuSchedulingMapArgs
    reasons = tuple(each.reason for each in MapObstacle)

    def __init__(self, args: GpuSchedulingMapArgs, handle: Handle) -> None:
        self._handle = handle
        self._teller = Teller(handle)
        self._needs_permission = args.require_permission
        self._namespaces = handle.state.store(resources.NAMESPACES)
        self._table = device_table(handle.state)
        handle.state.shared(MapProfiles).add(handle.profile, args.require_permission, handle.state)
        self._aliases = handle.state.shared(Aliases, handle.state)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A node appears or gets the name in the map; devices are released or reported; the namespace's permission
        changes.
        """
        return (
            on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL),
            on("pods", Action.DELETE),
            on("leases", Action.UPDATE | Action.DELETE),
            on("gpunodestatuses", Action.ADD | Action.UPDATE, _says_more),
            on("namespaces", Action.ADD | Action.UPDATE, _is_its_namespace),
        )

    @hookimpl
    def pre_cycle(self, pod: PodInfo) -> None:
        """Record an event that names the skipped lines of the map."""
        text = pod.annotations.get(custom_resources.SCHEDULING_MAP)
        if text is not None and (found := scheduling_map.parse(text)).skipped:
            more = found.skipped - len(found.faults)
            said = "; ".join([*map(str, found.faults), *([f"and {more} more lines"] if more else [])])
            self._tell(pod, "InvalidSchedulingMapLine", f"{custom_resources.SCHEDULING_MAP}: skipped {said}")

    @hookimpl
    def pre_cycle_all(self, pods: Sequence[PodInfo]) -> None:
        """As `pre_cycle` for each."""
        for pod in pods:
            if custom_resources.SCHEDULING_MAP in pod.annotations:
                self.pre_cycle(pod)

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | Narrow | None:
        """Find the pod's entry and its node; without an entry the pod is not scheduled."""
        text = pod.annotations.get(custom_resources.SCHEDULING_MAP)
        if text is None:
            return SKIP
        if self._needs_permission and not self._is_allowed(pod.namespace):
            return _refuse(permissions.missing(permissions.SCHEDULING_MAP, pod.namespace))
        found = scheduling_map.parse(text)
        index = scheduling_map.pod_index(metadata_of(pod))
        if index is None:
            return _refuse("the pod has no index: no index label, and its name does not end in -NUMBER")
        entry = found.entries.get(index)
        if entry is None:
            return _refuse(f"there is no entry for index {index}")
        ids = ids_in(entry.devices)
        if ids is None:
            return _refuse(f"{entry.devices[:64]!r} are no device ids, such as 0,1; they go to {MOST_DEVICES - 1}")
        nodes = self._nodes(entry.node)
        if not nodes:
            return _refuse(f"there is no node {entry.node}, by its name or its label {custom_resources.NODE_ALIAS}")
        cycle.write(PLACE, MapPlace(entry, ids, nodes))
        return Narrow(nodes)

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Nodes that do not have the entry's devices, or where other pods have them."""
        place, columns = cycle.read(PLACE), self._table.columns
        verdicts: CodeColumn = np.zeros(len(nodes), dtype=np.uint8)
        named = [row for name in place.nodes if (row := self._handle.nodes.row_of(name)) is not None]
        mask = mask_of(place.ids)
        for i in np.flatnonzero(np.isin(nodes.rows, named)).tolist():  # the nodes that the entry names, usually one
            row = int(nodes.rows[i])
            if columns.known[row] and mask & ~int(columns.present[row]):
                verdicts[i] = MapObstacle.MISSING
            elif mask & int(columns.busy[row]) and self._table.is_taken_from(pod, row, place.ids):
                verdicts[i] = MapObstacle.TAKEN
        return verdicts

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """The pod's entry in the map, or why there is none."""
        if custom_resources.SCHEDULING_MAP not in pod.annotations:
            return None
        text, index = pod.annotations[custom_resources.SCHEDULING_MAP], scheduling_map.pod_index(metadata_of(pod))
        return "no index" if index is None else scheduling_map.parse(text).entries.get(index, "no entry")

    @hookimpl
    def identity_all(
        self, pods: Sequence[PodInfo], annotations: Sequence[Mapping[str, str]]
    ) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        key = custom_resources.SCHEDULING_MAP
        for pod in pods:
            if key in pod.annotations:
                return list(map(self.identity, pods, annotations))
        return None

    @hookimpl
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Take the devices; the binding writes them on the pod as they are written in the map."""
        place = cycle.get(PLACE)
        if place is None:
            return None
        if self._table.is_taken_from(pod, pod.row, place.ids):  # by a pod that was placed in the same cycle
            return unschedulable(
                f"{custom_resources.SCHEDULING_MAP}: others have got GPUs {place.entry.devices} of node {node} "
                "meanwhile"
            )
        allocation = self._table.assign(pod, place.ids)
        cycle.annotations[custom_resources.ALLOCATED] = place.entry.devices
        cycle.annotations[custom_resources.ALLOCATED_UUIDS] = join(allocation.uuids)
        return None

    @hookimpl
    def reserve_all(self, pods: Sequence[PodInfo]) -> Status | None:
        """Nothing is to be done for pods without a map."""
        return None if any(custom_resources.SCHEDULING_MAP in pod.annotations for pod in pods) else SKIP

    def _is_allowed(self, namespace: str) -> bool:
        return permissions.is_allowed(permissions.SCHEDULING_MAP, namespace, self._namespaces)

    def _nodes(self, name: str) -> frozenset[str]:
        """The node of this name, or else the nodes with this name in their label."""
        if self._handle.nodes.row_of(name) is not None:
            return frozenset((name,))
        return frozenset(self._aliases.nodes.get(name, ()))

    @hookimpl
    def post_reject(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        """Record an event that says why the pod's map cannot be used."""
        if diagnosis.status is not None and diagnosis.status.plugin == self.name:
            self._tell(pod, "SchedulingMapNotUsable", diagnosis.status.message)

    def _tell(self, pod: PodInfo, reason: str, note: str) -> None:
        self._teller.once(pod, reason, note)


class Aliases:
    """The nodes by their label gpu-node-name."""

    def __init__(self, state: State) -> None:
        self.nodes: dict[str, set[str]] = {}
        """Names of nodes by the label's value."""
        self._of: dict[str, str] = {}
        state.follow_nodes(self)

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node was added or has changed."""
        name, alias = node.metadata.name, (node.metadata.labels or {}).get(custom_resources.NODE_ALIAS, "")
        if self._of.get(name, "") != alias:
            self.node_removed(name, row)
            if alias:
                self._of[name] = alias
                self.nodes.setdefault(alias, set()).add(name)

    def node_removed(self, name: str, row: int) -> None:
        """A node was removed."""
        alias = self._of.pop(name, "")
        named = self.nodes.get(alias, set())
        named.discard(name)
        if not named:
            self.nodes.pop(alias, None)


def _refuse(why: str) -> Status:
    return unschedulable(f"{custom_resources.SCHEDULING_MAP}: {why}", resolvable=False)


def _is_its_namespace(pod: PodInfo, old: model.Namespace | None, new: model.Namespace | None) -> bool:
    return new is not None and new.metadata.name == pod.namespace


def _says_more(
    pod: PodInfo, old: custom_resources.GpuNodeStatus | None, new: custom_resources.GpuNodeStatus | None
) -> bool:
    return old is None or new is None or not says_the_same(old, new)
