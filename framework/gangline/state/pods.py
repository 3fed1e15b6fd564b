"""Pods as the scheduler keeps them: one record per pod, one shared class for all that are alike.

Rules:
- A pod class is everything that the scheduler reads from namespace and spec (and, of a running pod, from the
  resources in its status). Pods of one class get the same verdict on every node, so work is shared by class.
- Labels are interned on their own: they differ between pods that are otherwise alike.
- Both live as long as a pod refers to them; `interning` makes them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.model import (
    OwnerReference,
    PodCondition,
    PodSpec,
)
from gangline.state.requests import Requests
from gangline.state.slots import Slot
from gangline.wire.custom_resources import ALLOCATED, ALLOCATED_UUIDS

_NO_ROWS: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
_NO_AMOUNTS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


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


def memo_key(*values: Hashable) -> object:
    """What is remembered in `PodClass.memo` under: the same object for equal values, such as a plugin's arguments.

    A plugin itself as the key would stay alive with the pod class after its configuration has ended.
    """
    return _memo_key(values)


@lru_cache(maxsize=1024)
def _memo_key(values: tuple[Hashable, ...]) -> object:
    return object()


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


class PodInfo(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One pod as the API server has it. It never changes; where the pod is now is in its slot, written by the cache."""

    cls: PodClass
    """Its class: everything that is read of namespace and spec, shared by pods that are alike in that."""
    labels: LabelSet
    """metadata.labels."""
    uid: str
    """metadata.uid: its identity."""
    namespace: str
    """metadata.namespace."""
    name: str
    """metadata.name."""
    key: str
    """NAMESPACE/NAME."""
    annotations: Mapping[str, str]
    """metadata.annotations; an allocation of devices only where the pod has a node."""
    owners: list[OwnerReference]
    """metadata.ownerReferences."""
    created: str
    """metadata.creationTimestamp, RFC 3339; "" where it is not known."""
    terminating: bool
    """Whether it is being deleted."""
    resource_version: str
    """metadata.resourceVersion."""
    scheduler_name: str
    """spec.schedulerName."""
    gates: tuple[str, ...]
    """The names of its scheduling gates."""
    group: str
    """The PodGroup of Kubernetes that spec.schedulingGroup names; "" for none."""
    phase: str
    """status.phase."""
    start_time: str
    """status.startTime, RFC 3339; "" before the kubelet has taken it."""
    conditions: dict[str, PodCondition]
    """status.conditions by type."""
    slot: Slot
    """What changes while the scheduler works."""

    def anew(self) -> PodInfo:
        """The pod as its controller would make it if it went: without a node and without devices, for what-if."""
        annotations = {k: v for k, v in self.annotations.items() if k not in (ALLOCATED, ALLOCATED_UUIDS)}
        uid = f"{self.uid}/anew"
        return msgspec.structs.replace(self, uid=uid, annotations=annotations, start_time="", slot=Slot())

    @property
    def row(self) -> int:
        """The row of the node that it is on or assumed to be on, -1 for none."""
        return self.slot.row

    @property
    def node_name(self) -> str:
        """spec.nodeName: "" until it is bound or assumed on a node."""
        return self.slot.node_name

    @property
    def nominated_node_name(self) -> str:
        """The node on which room is being made for it; "" for none."""
        return self.slot.nominated_node_name

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
