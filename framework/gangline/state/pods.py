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
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import bounds
from gangline.model import (
    ContainerStatus,
    OwnerReference,
    Pod,
    PodSpec,
    Resources,
    Volume,
)
from gangline.state import requests
from gangline.state.requests import Requests
from gangline.wire.custom_resources import ALLOCATED, ALLOCATED_UUIDS

MOST_OFFERED = 1024
"""Resources that have a row at the same time. Further ones count as offered by nobody; a large cluster has dozens."""
_MOST_INDICES = 1024
_NO_ROWS: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
_NO_AMOUNTS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
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
    ) -> None:
        self.id = id
        """Told apart by this."""
        self.namespace = namespace
        """metadata.namespace of its pods."""
        self.spec = spec
        """The spec without what differs from pod to pod (node name, gates, group) and volumes that take no place."""
        self.requests = requests
        """`requests.real[resource]`: milli-CPU, bytes, or whole devices; with init containers and overhead."""
        self.resources: NDArray[np.intp] = _NO_ROWS
        """Rows of the resource axis that the pod uses, the number of pods among them; kept by the axis."""
        self.amounts: NDArray[np.int64] = _NO_AMOUNTS
        """How much of each, int64."""
        self.priority = spec.priority or 0
        """spec.priority, 0 when absent."""
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
        """Its class: everything that is read of namespace and spec, shared by pods that are alike in that."""
        self.labels = labels
        """metadata.labels."""
        self.uid = metadata.uid or f"{metadata.namespace}/{metadata.name}"
        """metadata.uid: its identity."""
        self.namespace = metadata.namespace
        """metadata.namespace."""
        self.name = metadata.name
        """metadata.name."""
        self.key = f"{metadata.namespace}/{metadata.name}"
        """NAMESPACE/NAME."""
        annotations = metadata.annotations or {}
        annotations.pop(_UNREAD_ANNOTATION, None)
        if not spec.node_name:  # an allocation comes with the node; before that somebody has made it up
            annotations.pop(ALLOCATED, None)
            annotations.pop(ALLOCATED_UUIDS, None)
        self.annotations: Mapping[str, str] = annotations
        """metadata.annotations; an allocation of devices only where the pod has a node."""
        self.owners: list[OwnerReference] = metadata.owner_references
        """metadata.ownerReferences."""
        self.created = metadata.creation_timestamp or ""
        """metadata.creationTimestamp, RFC 3339; "" where it is not known."""
        self.terminating = metadata.deletion_timestamp is not None
        """Whether it is being deleted."""
        self.resource_version = metadata.resource_version
        """metadata.resourceVersion."""
        self.scheduler_name = spec.scheduler_name
        """spec.schedulerName."""
        self.node_name = spec.node_name
        """spec.nodeName: "" until it is bound, also while it is assumed on a node."""
        self.gates = tuple(gate.name for gate in spec.scheduling_gates)
        """The names of its scheduling gates."""
        self.group = spec.scheduling_group.pod_group_name if spec.scheduling_group else ""
        """The PodGroup of Kubernetes that spec.schedulingGroup names; "" for none."""
        self.phase = status.phase
        """status.phase."""
        self.start_time = status.start_time or ""
        """status.startTime, RFC 3339; "" before the kubelet has taken it."""
        self.nominated_node_name = status.nominated_node_name
        """The node on which room is being made for it; "" for none."""
        self.conditions = {c.type: c for c in status.conditions}
        """status.conditions by type."""
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
    """Resource names to rows of the resource columns.

    A resource has a row while some node offers it. What no node has needs none, whatever pods ask for: reading it gives
    the row NOTHING, in which there is nothing. So pods cannot make the columns grow, and a resource that goes with its
    last node gives its row back. Classes of pods hold the rows of what they ask for; the axis brings them up to date.
    """

    NOTHING = 4

    def __init__(self) -> None:
        self.names: list[str] = [requests.CPU, requests.MEMORY, requests.EPHEMERAL_STORAGE, requests.PODS, ""]
        """By row; "" for NOTHING and for rows that are free."""
        self._rows = {name: row for row, name in enumerate(self.names) if name}
        self._lasting = frozenset(self._rows)
        self._offers: Counter[str] = Counter()
        self._free: list[int] = []
        self._users: dict[str, weakref.WeakSet[PodClass]] = {}
        """The classes that ask for each resource which is not always there."""
        self._indices: dict[tuple[str, ...], slice | NDArray[np.intp]] = {}
        self._on_growth: list[Callable[[], None]] = []
        self._tidied = _MOST_INDICES

    def row(self, name: str) -> int:
        """The row of a resource; NOTHING for one that no node offers."""
        return self._rows.get(name, self.NOTHING)

    def rows(self, names: tuple[str, ...]) -> slice | NDArray[np.intp]:
        """The rows of several resources; a slice where they follow each other, so that no copy is made."""
        found = self._indices.get(names)
        if found is None:
            rows = [self.row(name) for name in names]
            together = rows == list(range(rows[0], rows[0] + len(rows))) if rows else False
            found = slice(rows[0], rows[-1] + 1) if together else np.array(rows, dtype=np.intp)
            if len(self._indices) >= _MOST_INDICES:
                self._indices.clear()
            self._indices[names] = found
        return found

    def offer(self, name: str) -> None:
        """One more kind of node has the resource; it is counted until `withdraw`."""
        self._offers[name] += 1

    def give_row(self, name: str) -> bool:
        """Give a resource that is offered a row, where it has none and there is room; says whether that was done."""
        if name in self._rows or len(self._rows) >= MOST_OFFERED:
            return False
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
        self._rows[name] = row
        self._indices.clear()
        for tell in self._on_growth:
            tell()
        self._bring_up_to_date(name)
        return True

    def withdraw(self, name: str) -> int | None:
        """The nodes of one `offer` no longer have it; returns the row that this has set free, to be emptied."""
        self._offers[name] -= 1
        if self._offers[name] > 0:
            return None
        del self._offers[name]
        if name in self._lasting or name not in self._rows:
            return None
        row = self._rows.pop(name)
        self.names[row] = ""
        self._free.append(row)
        self._indices.clear()
        self._bring_up_to_date(name)
        return row

    def follow(self, cls: PodClass) -> None:
        """Keep the rows of a class as they should be, from now on."""
        self._locate(cls)
        for name in cls.requests.real:
            if name not in self._lasting:
                users = self._users.get(name)
                if users is None:
                    users = self._users[name] = weakref.WeakSet()
                users.add(cls)
        if len(self._users) > 2 * self._tidied:
            self._users = {name: users for name, users in self._users.items() if users}
            self._tidied = max(_MOST_INDICES, len(self._users))

    def users(self, name: str) -> Collection[PodClass]:
        """The classes of pods that ask for a resource which is not always there."""
        return self._users.get(name, ())

    def on_growth(self, tell: Callable[[], None]) -> None:
        """Call tell whenever there is a new row."""
        self._on_growth.append(tell)

    def __len__(self) -> int:
        return len(self.names)

    def _bring_up_to_date(self, name: str) -> None:
        for cls in self.users(name):
            self._locate(cls)

    def _locate(self, cls: PodClass) -> None:
        asked = {**cls.requests.real, requests.PODS: 1}
        known = {self._rows[name]: amount for name, amount in asked.items() if name in self._rows}
        cls.resources = np.array(list(known), dtype=np.intp)
        cls.amounts = np.array(list(known.values()), dtype=np.int64)


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
        """The record of a pod. Raises InvalidObject when its requests cannot be read, or it goes past the bounds."""
        metadata = pod.metadata
        bounds.check_count("metadata.labels", metadata.labels, bounds.MOST_LABELS)
        bounds.check_count("metadata.annotations", metadata.annotations, bounds.MOST_LABELS)
        bounds.check_count("metadata.ownerReferences", metadata.owner_references, bounds.MOST_IN_SPEC)
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
        alike = _Key(
            pod.metadata.namespace,
            spec,
            _resized(status.container_statuses) if status else [],
            _resized(status.init_container_statuses) if status else [],
            status.allocated_resources if status else None,
            status.resources if status else None,
            status is not None and requests.is_resize_infeasible(status),
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


def _resized(statuses: list[ContainerStatus]) -> list[ContainerStatus]:
    return [status for status in statuses if status.resources is not None]
