"""VolumeZone: a pod gets only nodes in the zone and region of its volumes' labels."""

from __future__ import annotations

from collections.abc import Sequence

from gangline import (
    SKIP,
    SKIP_CLASS,
    Action,
    CodeColumn,
    Cycle,
    EventHint,
    Handle,
    NodeView,
    PodInfo,
    Reason,
    StateKey,
    Status,
    codes,
    hookimpl,
    model,
    on,
    unschedulable,
)
from gangline_plugins.volumes.objects import (
    WAIT_FOR_FIRST_CONSUMER,
    StorageObjects,
    class_of_claim,
    named_claims,
    names_claim,
    not_found,
)

_STABLE = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The labels that count, in the order in which they are looked at, each with its present-day name."""
_DELIMITER = "__"

Topology = tuple[str, frozenset[str]]
"""A label key, and the values of which a node must have one."""
_TOPOLOGIES: StateKey[list[Topology]] = StateKey("VolumeZone")


class VolumeZone:
    """Reads the labels of the volumes that the pod's claims are bound to."""

    name = "VolumeZone"
    ignores_requests = True
    reasons = (Reason("node(s) had no available volume zone", resolvable=False),)

    def __init__(self, handle: Handle) -> None:
        self._objects = StorageObjects(handle.state)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Nodes with changed labels, and changes of the claims, their volumes or the volumes' labels."""
        return (
            on("storageclasses", Action.ADD, lambda pod, old, new: waits_for_consumer(new)),
            on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL),
            on("persistentvolumeclaims", Action.ADD | Action.UPDATE, lambda pod, old, new: names_claim(pod, new)),
            on(
                "persistentvolumes",
                Action.ADD | Action.UPDATE,
                lambda pod, old, new: old is None or topologies_of(old) != topologies_of(new),
            ),
        )

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Collect the volumes' labels; skip the filter if there are none."""
        if not pod.cls.spec.volumes:
            return SKIP_CLASS
        topologies: list[Topology] = []
        for name in named_claims(pod.cls):
            volume = self._volume(pod.namespace, name)
            if isinstance(volume, Status):
                return volume
            if volume is not None:
                topologies += topologies_of(volume)
        if not topologies:
            return SKIP
        cycle.write(_TOPOLOGIES, topologies)
        return None

    @hookimpl
    def filter(self, cycle: Cycle, nodes: NodeView) -> CodeColumn:
        """Nodes that have a zone or region label without a value of the volume's label."""
        elsewhere = nodes.full(False)
        for key, values in cycle.read(_TOPOLOGIES):
            column = nodes.label(key)
            elsewhere |= ~(column.isin(values) | (~column.exists & nodes.label(_STABLE[key]).isin(values)))
        labelled = nodes.full(False)
        for key in _STABLE:
            labelled |= nodes.label(key).exists
        return codes(elsewhere & labelled)

    def _volume(self, namespace: str, name: str) -> model.PersistentVolume | Status | None:
        """The volume of a claim; None for a claim that waits for its first consumer; or why the pod cannot run."""
        if not name:
            return unschedulable("PersistentVolumeClaim had no name", resolvable=False)
        claim = self._objects.claim(namespace, name)
        if claim is None:
            return unschedulable(not_found("persistentvolumeclaims", name), resolvable=False)
        if claim.spec.volume_name:
            volume = self._objects.volume(claim.spec.volume_name)
            return volume or unschedulable(not_found("persistentvolumes", claim.spec.volume_name), resolvable=False)
        wanted = class_of_claim(claim)
        if not wanted:
            return unschedulable("PersistentVolumeClaim had no pv name and storageClass name", resolvable=False)
        found = self._objects.storage_class(wanted)
        if found is None:
            return unschedulable(not_found("storageclasses", wanted), resolvable=False)
        if found.volume_binding_mode is None:
            return unschedulable(f'VolumeBindingMode not set for StorageClass "{wanted}"', resolvable=False)
        if waits_for_consumer(found):
            return None
        return unschedulable("PersistentVolume had no name", resolvable=False)


def waits_for_consumer(storage_class: model.StorageClass) -> bool:
    """Whether volumes of the class are bound only when a pod needs them."""
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def topologies_of(volume: model.PersistentVolume) -> list[Topology]:
    """The zone and region labels of a volume; a label with an empty part is ignored."""
    labels = volume.metadata.labels or {}
    found = []
    for key in _STABLE:
        values = frozenset(part.strip() for part in labels.get(key, "").split(_DELIMITER))
        if "" not in values:
            found.append((key, values))
    return found
