"""Makes the records of pods; values that many pods have in common are one shared object."""

from __future__ import annotations

import weakref
from typing import Any

import msgspec

from gangline import bounds
from gangline.model import ContainerStatus, Pod, PodSpec, Resources, Volume
from gangline.state import requests
from gangline.state.pods import NO_CLAIMS, LabelSet, PodClass, PodInfo
from gangline.state.resource_axis import ResourceAxis
from gangline.state.slots import Slot
from gangline.wire.custom_resources import ALLOCATED, ALLOCATED_UUIDS

_UNREAD_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


class _ClassKey(msgspec.Struct):
    """The values in which the pods of one class are equal; encoded, it is the key of the class."""

    namespace: str
    spec: PodSpec
    container_statuses: list[ContainerStatus]
    init_container_statuses: list[ContainerStatus]
    allocated: Resources | None
    running: Any
    infeasible: bool


class Interner:
    """Makes pod records, and shares classes and labels between them."""

    def __init__(self, axis: ResourceAxis) -> None:
        self._axis = axis
        self._encode = msgspec.msgpack.Encoder(order="deterministic").encode
        self._classes: weakref.WeakValueDictionary[bytes, PodClass] = weakref.WeakValueDictionary()
        self._labels: weakref.WeakValueDictionary[tuple[tuple[str, str], ...], LabelSet] = weakref.WeakValueDictionary()
        self._next_class = 0
        self._next_labels = 0

    def pod(self, pod: Pod, row: int = -1) -> PodInfo:
        """The record of a pod, on a row if one is given.

        Raises InvalidObject if its requests cannot be read, or if it exceeds the bounds.
        """
        _check_counts(pod)
        return _record(pod, self._class(pod), self.labels(pod.metadata.labels or {}), row)

    def labels(self, labels: dict[str, str]) -> LabelSet:
        """The one object for these labels."""
        key = tuple(sorted(labels.items()))
        found = self._labels.get(key)
        if found is None:
            self._next_labels += 1
            found = self._labels[key] = LabelSet(self._next_labels, labels)
        return found

    def _class(self, pod: Pod) -> PodClass:
        volumes = pod.spec.volumes
        if volumes:  # the volume of the service account's token has another name in every pod
            volumes = [volume for volume in volumes if volume != Volume(volume.name)]
        spec = msgspec.structs.replace(
            pod.spec, node_name="", scheduling_gates=[], scheduling_group=None, volumes=volumes
        )
        status = pod.status if pod.spec.node_name else None
        alike = _ClassKey(
            pod.metadata.namespace,
            spec,
            _resized(status.container_statuses) if status and status.container_statuses else [],
            _resized(status.init_container_statuses) if status and status.init_container_statuses else [],
            status.allocated_resources if status else None,
            status.resources if status else None,
            bool(status and status.conditions) and requests.is_resize_infeasible(pod.status),
        )
        key = self._encode(alike)
        found = self._classes.get(key)
        if found is None:
            bounds.check(alike, bounds.MOST_IN_SPEC)
            wanted = requests.compute(pod.spec, status)
            bounds.check_count("resources", wanted.real, bounds.MOST_RESOURCES)
            self._next_class += 1
            found = PodClass(self._next_class, pod.metadata.namespace, spec, wanted)
            self._axis.follow(found)
            self._classes[key] = found
        return found


def _check_counts(pod: Pod) -> None:
    """Raise InvalidObject where a pod has more labels or the like than are read."""
    metadata, claims = pod.metadata, pod.status.resource_claim_statuses
    labels, annotations, owners = metadata.labels, metadata.annotations, metadata.owner_references
    if len(labels or ()) + len(annotations or ()) + len(owners) + len(claims or ()) <= bounds.MOST_IN_SPEC:
        return  # nearly every pod; one sum is quicker than four comparisons
    bounds.check_count("metadata.labels", labels, bounds.MOST_LABELS)
    bounds.check_count("metadata.annotations", annotations, bounds.MOST_LABELS)
    bounds.check_count("metadata.ownerReferences", owners, bounds.MOST_IN_SPEC)
    bounds.check_count("status.resourceClaimStatuses", claims, bounds.MOST_IN_SPEC)


def _record(pod: Pod, cls: PodClass, labels: LabelSet, row: int) -> PodInfo:
    """The record of a pod. A device allocation in the annotations counts only if the pod has a node: see `PodInfo`."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    key = f"{metadata.namespace}/{metadata.name}"
    annotations = metadata.annotations or {}
    if annotations:
        annotations.pop(_UNREAD_ANNOTATION, None)
        if not spec.node_name:
            annotations.pop(ALLOCATED, None)
            annotations.pop(ALLOCATED_UUIDS, None)
    return PodInfo(
        cls,
        labels,
        metadata.uid or key,
        metadata.namespace,
        metadata.name,
        key,
        annotations,
        metadata.owner_references,
        metadata.creation_timestamp or "",
        metadata.deletion_timestamp is not None,
        metadata.resource_version,
        spec.scheduler_name,
        tuple([gate.name for gate in spec.scheduling_gates]) if spec.scheduling_gates else (),
        spec.scheduling_group.pod_group_name if spec.scheduling_group else "",
        status.phase,
        status.start_time or "",
        {c.type: c for c in status.conditions} if status.conditions else {},
        Slot(row, spec.node_name, status.nominated_node_name),
        {c.name: c.resource_claim_name for c in made} if (made := status.resource_claim_statuses) else NO_CLAIMS,
        extended.resource_claim_name if (extended := status.extended_resource_claim_status) else "",
        status.nominated_node_name,
    )


def _resized(statuses: list[ContainerStatus]) -> list[ContainerStatus]:
    return [status for status in statuses if status.resources is not None]
