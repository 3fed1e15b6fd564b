"""Nodes."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta, PodCondition, Resources


class Taint(Object):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Object):
    """spec of a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class ContainerImage(Object):
    """An image that a node has pulled."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(Object):
    """status of a node."""

    allocatable: Resources | None = None
    capacity: Resources | None = None
    images: list[ContainerImage] = []
    conditions: list[PodCondition] = []
    declared_features: list[str] = []


class Node(Object):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
