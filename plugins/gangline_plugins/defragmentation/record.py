"""The record of the moves that are being carried out, in a ConfigMap, so that every scheduler process keeps the room.

The ConfigMap `gangline-moves` is also the lock: it is created when the moves begin and deleted when they end, so a
second run finds it and does not start. A scheduler that keeps the room writes the record's id under the key `held`; no
pod is evicted before.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gangline import InvalidObject, NodeView, PodInfo, model, texts
from gangline_plugins.defragmentation.plan import MovePlan, MoveStep

CONFIG_MAP = "gangline-moves"
RECORD, HELD = "record", "held"
"""Keys of the ConfigMap's data."""


class HeldRoom(msgspec.Struct, frozen=True, rename="camel"):
    """Room on a node for the pod that a controller creates in place of an evicted one."""

    owner: str
    """The controller; see `owner_of`."""
    node: str
    requests: dict[str, int]
    known: list[str]
    """The UIDs of the controller's pods that were on the node before; the room is not for them."""


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """The nodes and the room that are kept."""

    id: str
    until: float
    """Seconds since the epoch after which nothing is kept, in case the process that moves the pods has died."""
    profile: str
    """The schedulerName of the profile that keeps the room."""
    goal: str
    group: str
    """The key of the group for which the nodes are kept; "" if there is none."""
    nodes: list[str]
    """Nodes that are kept for the group; without a group, nodes that no pod may use."""
    holds: list[HeldRoom]


def owner_of(pod: PodInfo) -> str:
    """The controller of a pod as NAMESPACE/UID; "" if it has none. The namespace is included because a pod in a
    different namespace may name the same UID.
    """
    return owner_in(pod.namespace, pod.controller)


def owner_in(namespace: str, controller: model.OwnerReference | None) -> str:
    """The controller of a pod in this namespace, as NAMESPACE/UID; "" if it has none."""
    return f"{namespace}/{controller.uid}" if controller is not None else ""


def record_of(plan: MovePlan, nodes: NodeView, id: str, until: float) -> Record:
    """The record of a plan, given all nodes."""
    holds = list(_holds(plan, nodes))
    return Record(id, until, plan.profile, plan.goal, plan.group, plan.frees, holds)


def _holds(plan: MovePlan, nodes: NodeView) -> Iterator[HeldRoom]:
    for step in plan.steps:
        yield HeldRoom(step.owner, step.destination, step.requests, _known(step, nodes))


def _known(step: MoveStep, nodes: NodeView) -> list[str]:
    row = nodes.row_of(step.destination)
    pods = nodes.pods(row).values() if row is not None else ()
    return [pod.uid for pod in pods if step.owner and owner_of(pod) == step.owner]


def written(record: Record) -> dict[str, str]:
    """The data of the ConfigMap for a record."""
    return {RECORD: msgspec.json.encode(record).decode()}


def read(config_map: model.ConfigMap) -> Record:
    """The record in a ConfigMap. Raises InvalidObject."""
    text = (config_map.data or {}).get(RECORD)
    where = f"ConfigMap {config_map.metadata.namespace}/{config_map.metadata.name}: data.{RECORD}"
    if text is None:
        raise InvalidObject(where, None, "is missing")
    return texts.from_json(where, text, Record)


def held(config_map: model.ConfigMap) -> str:
    """The id of the record that a scheduler keeps; "" if none does."""
    return (config_map.data or {}).get(HELD, "")
