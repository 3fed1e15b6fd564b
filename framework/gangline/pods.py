"""Pods as the scheduler keeps them: one record per pod, one shared class for all that are alike.

Rules:
- A pod class is everything that the scheduler reads from namespace and spec (and, of a running pod, from the
  resources in its status). Pods of one class get the same verdict on every node, so work is shared by class.
- Labels are interned on their own: they differ between pods that are otherwise alike.
- Both live as long as a pod refers to them.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import requests
from gangline.model import (
    ContainerStatus,
    OwnerReference,
    Pod,
    PodSpec,
    Resources,
    Volume,
)
from gangline.requests import Requests
from gangline.wire import ALLOCATED, ALLOCATED_UUIDS

_UNREAD_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


class LabelSet(Mapping[str, str]):
    """Labels, interned: equal ones are one object, told apart by `id`."""

    __slots__ = ("__weakref__", "_labels", "id")

    def __init__(self, id: int, labels: dict[str, str]) -> None:
        self.id = id
        self._labels = labels

    def __getitem__(self, key: str) -> str:
        return self._labels[key]

    def __iter__(self) -> Any:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of key, or default."""
        return self._labels.get(key, default)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, LabelSet) else dict(self) == other


class PodClass:
    """What all pods that are alike share."""

    __slots__ = (
        "__weakref__",
        "amounts",
        "id",
        "memo",
        "namespace",
        "priority",
        "requests",
        "resources",
        "spec",
    )

    def __init__(
        self,
        id: int,
        namespace: str,
        spec: PodSpec,
        requests: Requests,
        resources: NDArray[np.intp],
        amounts: NDArray[np.int64],
    ) -> None:
        self.id = id
        self.namespace = namespace
        self.spec = spec
        """The spec without what differs from pod to pod (node name, gates, group) and volumes that take no place."""
        self.requests = requests
        self.resources = resources
        """Rows of the resource axis that the pod uses, the number of pods among them."""
        self.amounts = amounts
        """How much of each, int64."""
        self.priority = spec.priority or 0
        self.memo: dict[Any, Any] = {}
        """What plugins derive from the class once: compiled selectors and the like."""

    def __repr__(self) -> str:
        return f"PodClass({self.id}, {self.namespace})"


class PodInfo:
    """One pod. The cache alone changes `row`; everything else stays as it was when the record was made."""

    __slots__ = (
        "__weakref__",
        "annotations",
        "cls",
        "conditions",
        "created",
        "gates",
        "group",
        "key",
        "labels",
        "membership",
        "name",
        "namespace",
        "node_name",
        "nominated_node_name",
        "owners",
        "phase",
        "resource_version",
        "row",
        "scheduler_name",
        "start_time",
        "terminating",
        "uid",
    )

    def __init__(self, pod: Pod, cls: PodClass, labels: LabelSet) -> None:
        metadata, spec, status = pod.metadata, pod.spec, pod.status
        self.cls = cls
        self.labels = labels
        self.uid = metadata.uid or f"{metadata.namespace}/{metadata.name}"
        self.namespace = metadata.namespace
        self.name = metadata.name
        self.key = f"{metadata.namespace}/{metadata.name}"
        annotations = metadata.annotations or {}
        annotations.pop(_UNREAD_ANNOTATION, None)
        if not spec.node_name:  # an allocation comes with the node; before that somebody has made it up
            annotations.pop(ALLOCATED, None)
            annotations.pop(ALLOCATED_UUIDS, None)
        self.annotations: Mapping[str, str] = annotations
        self.owners: list[OwnerReference] = metadata.owner_references
        self.created = metadata.creation_timestamp or ""
        self.terminating = metadata.deletion_timestamp is not None
        self.resource_version = metadata.resource_version
        self.scheduler_name = spec.scheduler_name
        self.node_name = spec.node_name
        self.gates = tuple(gate.name for gate in spec.scheduling_gates)
        self.group = spec.scheduling_group.pod_group_name if spec.scheduling_group else ""
        self.phase = status.phase
        self.start_time = status.start_time or ""
        self.nominated_node_name = status.nominated_node_name
        self.conditions = {c.type: c for c in status.conditions}
        self.membership: tuple[int, Any] | None = None
        """What `groups` has found out about it, and when, so that it need not look twice."""
        self.row = -1
        """The row of the node that it is on or assumed to be on, -1 for none."""

    def anew(self) -> PodInfo:
        """The pod as its controller would make it if it went: without a node and without devices, for what-if."""
        made = copy.copy(self)
        made.uid = f"{self.uid}/anew"
        made.annotations = {k: v for k, v in self.annotations.items() if k not in (ALLOCATED, ALLOCATED_UUIDS)}
        made.row, made.node_name, made.nominated_node_name, made.start_time = -1, "", "", ""
        return made

    @property
    def spec(self) -> PodSpec:
        """The spec shared by its class."""
        return self.cls.spec

    @property
    def priority(self) -> int:
        """spec.priority, 0 when absent."""
        return self.cls.priority

    @property
    def is_terminal(self) -> bool:
        """Whether it has run to its end and holds nothing any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages it."""
        return next((owner for owner in self.owners if owner.controller), None)

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"


class _Key(msgspec.Struct):
    """What makes two pods alike; encoded, it is the key of their class."""

    namespace: str
    spec: PodSpec
    container_statuses: list[ContainerStatus]
    init_container_statuses: list[ContainerStatus]
    allocated: Resources | None
    running: Any
    infeasible: bool


class ResourceAxis:
    """Resource names to rows of the resource columns; a row keeps its meaning for ever."""

    def __init__(self) -> None:
        self.names: list[str] = [
            requests.CPU,
            requests.MEMORY,
            requests.EPHEMERAL_STORAGE,
            requests.PODS,
        ]
        self._rows = {name: row for row, name in enumerate(self.names)}
        self._indices: dict[tuple[str, ...], slice | NDArray[np.intp]] = {}
        self._on_growth: list[Callable[[], None]] = []

    def row(self, name: str) -> int:
        """The row of a resource; a new one when it was not seen before."""
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = len(self.names)
            self.names.append(name)
            for tell in self._on_growth:
                tell()
        return row

    def rows(self, names: tuple[str, ...]) -> slice | NDArray[np.intp]:
        """The rows of several resources; a slice where they follow each other, so that no copy is made."""
        found = self._indices.get(names)
        if found is None:
            rows = [self.row(name) for name in names]
            together = rows == list(range(rows[0], rows[0] + len(rows))) if rows else False
            found = slice(rows[0], rows[-1] + 1) if together else np.array(rows, dtype=np.intp)
            self._indices[names] = found
        return found

    def on_growth(self, tell: Callable[[], None]) -> None:
        """Call tell whenever there is a new resource."""
        self._on_growth.append(tell)

    def __len__(self) -> int:
        return len(self.names)


class Interner:
    """Makes pod records, and shares classes and labels between them."""

    def __init__(self, axis: ResourceAxis) -> None:
        self._axis = axis
        self._encode = msgspec.msgpack.Encoder(order="deterministic").encode
        self._classes: weakref.WeakValueDictionary[bytes, PodClass] = weakref.WeakValueDictionary()
        self._labels: weakref.WeakValueDictionary[tuple[tuple[str, str], ...], LabelSet] = weakref.WeakValueDictionary()
        self._next_class = 0
        self._next_labels = 0

    def pod(self, pod: Pod) -> PodInfo:
        """The record of a pod. Raises InvalidObject when its requests cannot be read."""
        return PodInfo(pod, self._class(pod), self.labels(pod.metadata.labels or {}))

    def labels(self, labels: dict[str, str]) -> LabelSet:
        """The one object for these labels."""
        key = tuple(sorted(labels.items()))
        found = self._labels.get(key)
        if found is None:
            self._next_labels += 1
            found = self._labels[key] = LabelSet(self._next_labels, labels)
        return found

    def _class(self, pod: Pod) -> PodClass:
        # The volume of its token has another name in every pod.
        volumes = [volume for volume in pod.spec.volumes if volume != Volume(volume.name)]
        spec = msgspec.structs.replace(
            pod.spec, node_name="", scheduling_gates=[], scheduling_group=None, volumes=volumes
        )
        status = pod.status if pod.spec.node_name else None
        key = self._encode(
            _Key(
                pod.metadata.namespace,
                spec,
                _resized(status.container_statuses) if status else [],
                _resized(status.init_container_statuses) if status else [],
                status.allocated_resources if status else None,
                status.resources if status else None,
                status is not None
                and any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions),
            )
        )
        found = self._classes.get(key)
        if found is None:
            wanted = requests.compute(pod.spec, status)
            amounts = {**wanted.real, requests.PODS: 1}
            self._next_class += 1
            found = self._classes[key] = PodClass(
                self._next_class,
                pod.metadata.namespace,
                spec,
                wanted,
                np.array([self._axis.row(name) for name in amounts], dtype=np.intp),
                np.array(list(amounts.values()), dtype=np.int64),
            )
        return found


def _resized(statuses: list[ContainerStatus]) -> list[ContainerStatus]:
    return [status for status in statuses if status.resources is not None]
