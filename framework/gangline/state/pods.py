"""Pods as the scheduler keeps them: one record per pod, and one shared class for all like pods.

Rules:
- A pod class is everything that the scheduler reads from namespace and spec (and, of a running pod, from the resources
  in its status). Pods of one class get the same verdict on every node, so work is done once per class.
- Labels are interned separately: they differ between pods that are otherwise alike.
- Classes and labels exist as long as a pod refers to them; `interning` makes them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from types import MappingProxyType
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
_ANEW = "/anew"
"""Ends the UID of a record that stands for a pod to come; no UID of the API server has a slash."""
NO_CLAIMS: Mapping[str, str | None] = MappingProxyType({})
"""Shared by all pods without claims from templates."""
_NO_AMOUNTS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
_DEVICES = (ALLOCATED, ALLOCATED_UUIDS)
"""The annotations that say which devices a pod has."""


class LabelSet(Mapping[str, str]):
    """Interned labels: equal ones are one object, identified by `id`."""

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

    def __contains__(self, key: object) -> bool:
        return key in self._labels  # in a tenth of the time that Mapping takes

    def get(self, key: str, default: Any = None) -> Any:
        """The value of key, or default."""
        return self._labels.get(key, default)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, LabelSet) else dict(self) == other


def memo_key(*values: Hashable) -> object:
    """A key for `PodClass.memo`: the same object for equal values, for example for a plugin's arguments.

    A plugin itself as the key would stay in memory with the pod class after its configuration has ended.
    """
    return _memo_key(values)


@lru_cache(maxsize=1024)
def _memo_key(values: tuple[Hashable, ...]) -> object:
    return object()


class PodClass:
    """What all like pods share."""

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
        "takes",
    )

    def __init__(
        self,
        id: int,
        namespace: str,
        spec: PodSpec,
        requests: Requests,
    ) -> None:
        self.id = id
        """The identity of the class."""
        self.namespace = namespace
        """metadata.namespace of its pods."""
        self.spec = spec
        """The spec without fields that differ from pod to pod (node name, gates, group), without volumes that need no
        place."""
        self.requests = requests
        """`requests.real[resource]`: milli-CPU, bytes, or whole devices; init containers and overhead included."""
        self.resources: NDArray[np.intp] = _NO_ROWS
        """Rows of the resource axis that the pod uses, including the row that counts pods; the axis updates them."""
        self.amounts: NDArray[np.int64] = _NO_AMOUNTS
        """The amount of each of these resources, int64."""
        self.takes: tuple[tuple[int, int], ...] = ()
        """The same rows and amounts as numbers."""
        self.priority = spec.priority or 0
        """spec.priority, 0 if absent."""
        self.memo: dict[Any, Any] = {}
        """What plugins compute once per class: compiled selectors, for example."""

    def __repr__(self) -> str:
        return f"PodClass({self.id}, {self.namespace})"


class PodInfo(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One pod as the API server has it. The record never changes; the cache writes where the pod is into its slot."""

    cls: PodClass
    """The class of the pod: everything that is read of namespace and spec, shared by like pods."""
    labels: LabelSet
    """metadata.labels."""
    uid: str
    """metadata.uid: the identity of the pod."""
    namespace: str
    """metadata.namespace."""
    name: str
    """metadata.name."""
    key: str
    """NAMESPACE/NAME."""
    annotations: Mapping[str, str]
    """metadata.annotations; a device allocation is kept only if the pod has a node."""
    owners: list[OwnerReference]
    """metadata.ownerReferences."""
    created: str
    """metadata.creationTimestamp, RFC 3339; "" if it is unknown."""
    terminating: bool
    """Whether the pod is being deleted."""
    resource_version: str
    """metadata.resourceVersion."""
    scheduler_name: str
    """spec.schedulerName."""
    gates: tuple[str, ...]
    """The names of the pod's scheduling gates."""
    group: str
    """The PodGroup of Kubernetes that spec.schedulingGroup names; "" for none."""
    phase: str
    """status.phase."""
    start_time: str
    """status.startTime, RFC 3339; "" before the kubelet has accepted the pod."""
    conditions: dict[str, PodCondition]
    """status.conditions by type."""
    slot: Slot
    """The values that change while the scheduler works."""
    claims: Mapping[str, str | None] = NO_CLAIMS
    """status.resourceClaimStatuses: the ResourceClaim that was made for an entry of spec.resourceClaims; None if the
    pod needs none for that entry. Entries that name their claim themselves are not in here."""
    extended_claim: str = ""
    """status.extendedResourceClaimStatus: the ResourceClaim for the extended resources of the pod; "" for none."""
    nominated_in_status: str = ""
    """status.nominatedNodeName: the node that the pod is meant for, whoever has written it; "" for none."""

    def anew(self) -> PodInfo:
        """The pod as its controller would create it again: without a node and without devices, for what-if."""
        annotations = _without_devices(self.annotations)
        uid = f"{self.origin}{_ANEW}"
        return msgspec.structs.replace(
            self, uid=uid, annotations=annotations, start_time="", slot=Slot(), nominated_in_status=""
        )

    @property
    def is_anew(self) -> bool:
        """Whether the record stands for a pod that a controller has yet to create: see `anew`."""
        return self.uid.endswith(_ANEW)

    @property
    def origin(self) -> str:
        """The UID of the pod in whose place this one is to come; its own for a pod that exists."""
        return self.uid.removesuffix(_ANEW)

    @property
    def row(self) -> int:
        """The row of the node on which the pod is or is assumed to be, -1 for none."""
        return self.slot.row

    @property
    def node_name(self) -> str:
        """spec.nodeName: "" until the pod is bound to a node or assumed on one."""
        return self.slot.node_name

    @property
    def nominated_node_name(self) -> str:
        """The node that the pod is meant for: plugins make room there, or the status says so; "" for none."""
        return self.slot.nominated_node_name

    @property
    def spec(self) -> PodSpec:
        """The spec shared by its class."""
        return self.cls.spec

    @property
    def priority(self) -> int:
        """spec.priority, 0 if absent."""
        return self.cls.priority

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has run to its end and holds nothing any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that is the pod's controller."""
        for owner in self.owners:
            if owner.controller:
                return owner
        return None

    def counts_as(self, newer: PodInfo) -> bool:
        """Whether columns and trackers count a newer record of the same pod as they count this one, on the same row."""
        return (
            self.cls is newer.cls
            and self.labels is newer.labels
            and self.terminating == newer.terminating
            and self.annotations == newer.annotations
            and self.owners == newer.owners
            and self.group == newer.group
        )

    def is_grouped_as(self, newer: PodInfo) -> bool:
        """Whether readers of groups find in a newer record of the same pod what they found in this one."""
        return (
            self.cls is newer.cls
            and self.labels is newer.labels
            and self.owners == newer.owners
            and self.group == newer.group
            and _without_devices(self.annotations) == _without_devices(newer.annotations)
        )

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"


def _without_devices(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in _DEVICES}
