"""Which pods have which devices of one node, and which of these pods share devices: those with scheduling maps, within
one namespace.

``allocations`` has the devices of each placed pod, by UID.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangline import PodInfo, custom_resources
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.node_devices import NodeDevices


def holders(node: NodeDevices, allocations: Mapping[str, Allocation]) -> dict[int, list[str]]:
    """For each device in use the UIDs of the pods on it."""
    found: dict[int, list[str]] = {}
    for uid in node.pods:
        for id in allocations[uid].ids if uid in allocations else ():
            found.setdefault(id, []).append(uid)
    return found


def is_taken_from(pod: PodInfo, ids: Iterable[int], node: NodeDevices, allocations: Mapping[str, Allocation]) -> bool:
    """Whether one of these devices is in use by a pod that does not share it with this one."""
    wanted, sharers = set(ids), _sharers(pod, node, allocations)
    return any(not wanted.isdisjoint(each.ids) for each in node.lent.values()) or any(
        not sharers.issuperset(uids)
        for id, uids in holders(node, allocations).items()
        if id in wanted and uids != [pod.uid]
    )


def shared(pod: PodInfo, node: NodeDevices, allocations: Mapping[str, Allocation]) -> set[int]:
    """The devices that only pods with the same namespace's scheduling maps have."""
    if custom_resources.SCHEDULING_MAP not in pod.annotations:
        return set()
    sharers = _sharers(pod, node, allocations)
    return {id for id, uids in holders(node, allocations).items() if sharers.issuperset(uids)}


def _sharers(pod: PodInfo, node: NodeDevices, allocations: Mapping[str, Allocation]) -> set[str]:
    """The UIDs of the pods on a node that have a scheduling map and are in the pod's namespace, and the pod's own
    UID.
    """
    found = {pod.uid}
    for uid, other in node.pods.items():
        allocation = allocations.get(uid)
        is_mapped = custom_resources.SCHEDULING_MAP in other.annotations and other.namespace == pod.namespace
        if is_mapped and allocation is not None and allocation.exclusivity == "Explicit":
            found.add(uid)
    return found
