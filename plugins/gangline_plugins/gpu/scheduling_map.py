"""GpuSchedulingMap: pods go to the node, and get the devices, that their annotation gpu-scheduling-map names.

Nobody checks whether the devices are free: pods of a map may share them. The device table counts them as taken as long
as one such pod is there, so other pods stay away.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangline import (
    SKIP,
    Action,
    Cycle,
    EventHint,
    Handle,
    Narrow,
    PodInfo,
    State,
    StateKey,
    Status,
    hookimpl,
    model,
    on,
    unschedulable,
)
from gangline.scheduling_map import Entry, parse, pod_index
from gangline.wire import ALLOCATED, ALLOCATED_UUIDS, NODE_ALIAS, SCHEDULING_MAP
from gangline_plugins.gpu.allocation import join, read_ids
from gangline_plugins.gpu.devices import device_table

ENTRY: StateKey[Entry] = StateKey("GpuSchedulingMap entry")


class GpuSchedulingMap:
    """Narrows to the node of the pod's entry in `pre_filter`, and takes its devices in `reserve`."""

    name = "GpuSchedulingMap"

    def __init__(self, args: None, handle: Handle) -> None:
        self._handle = handle
        self._table = device_table(handle.state)
        self._table.wants.maps = True
        self._aliases = handle.state.shared(Aliases, handle.state)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A node comes, or gets the name that the map calls it by."""
        return (on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL),)

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | Narrow | None:
        """Find the pod's entry and its node; without one the pod is not scheduled, and an event says why."""
        text = pod.annotations.get(SCHEDULING_MAP)
        if text is None:
            return SKIP
        found = parse(text)
        if found.faults:
            faults = "; ".join(map(str, found.faults))
            self._tell(pod, "InvalidSchedulingMapLine", f"{SCHEDULING_MAP}: skipped {faults}")
        index = pod_index(_metadata(pod))
        if index is None:
            return self._refuse(pod, "the pod has no index: no index label, and its name does not end in -NUMBER")
        entry = found.entries.get(index)
        if entry is None:
            return self._refuse(pod, f"there is no entry for index {index}")
        nodes = self._nodes(entry.node)
        if not nodes:
            return self._refuse(pod, f"there is no node {entry.node}, by its name or its label {NODE_ALIAS}")
        cycle.write(ENTRY, entry)
        return Narrow(nodes)

    @hookimpl
    def reserve(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Take the devices; they travel to the pod with its binding, written as in the map."""
        entry = cycle.get(ENTRY)
        if entry is not None:
            allocation = self._table.assign(pod, read_ids(entry.devices))
            cycle.annotations[ALLOCATED] = entry.devices
            cycle.annotations[ALLOCATED_UUIDS] = join(allocation.uuids)
        return None

    def _nodes(self, name: str) -> frozenset[str]:
        """The node of that name, or else those that are called so by their label."""
        if self._handle.nodes.row_of(name) is not None:
            return frozenset((name,))
        return frozenset(self._aliases.nodes.get(name, ()))

    def _refuse(self, pod: PodInfo, why: str) -> Status:
        self._tell(pod, "SchedulingMapNotUsable", f"{SCHEDULING_MAP}: {why}")
        return unschedulable(f"{SCHEDULING_MAP}: {why}", resolvable=False)

    def _tell(self, pod: PodInfo, reason: str, note: str) -> None:
        self._handle.recorder.event(pod, "Warning", reason, note)


class Aliases:
    """Which nodes bear which label gpu-node-name."""

    def __init__(self, state: State) -> None:
        self.nodes: dict[str, set[str]] = {}
        """By the label's value."""
        self._of: dict[str, str] = {}
        state.follow_nodes(self)

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node is there, or has changed."""
        name, alias = node.metadata.name, (node.metadata.labels or {}).get(NODE_ALIAS, "")
        if self._of.get(name, "") != alias:
            self.node_removed(name, row)
            if alias:
                self._of[name] = alias
                self.nodes.setdefault(alias, set()).add(name)

    def node_removed(self, name: str, row: int) -> None:
        """A node is gone."""
        alias = self._of.pop(name, "")
        named = self.nodes.get(alias, set())
        named.discard(name)
        if not named:
            self.nodes.pop(alias, None)


def _metadata(pod: PodInfo) -> model.ObjectMeta:
    """What says which pod of its workload it is."""
    return model.ObjectMeta(
        name=pod.name,
        namespace=pod.namespace,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        owner_references=pod.owners,
    )
