"""What every object has: metadata, owners, conditions and references."""

from __future__ import annotations

from typing import Protocol

import msgspec

Quantity = str | int | float
Resources = dict[str, Quantity]


class Object(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """The base of all structs of this package."""


class OwnerReference(Object):
    """A pointer from an object to its owner."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Object):
    """metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []


class ListMeta(Object):
    """metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class LocalName(Object):
    """A reference that consists only of a name."""

    name: str = ""


class TypedReference(Object):
    """A reference to an object by kind, namespace, name and UID."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class PodCondition(Object):
    """A condition of a pod, or of any other object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_probe_time: str | None = None
    observed_generation: int | None = None


class ResourceRequirements(Object):
    """requests and limits of a container or a pod."""

    requests: Resources | None = None
    limits: Resources | None = None


class HasMetadata(Protocol):
    """The protocol of every object of the API."""

    @property
    def metadata(self) -> ObjectMeta: ...
