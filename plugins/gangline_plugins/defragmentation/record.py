"""What is written down while moves are carried out, so that every scheduler process keeps the room: a ConfigMap.

`gangline-moves` is the lock as well: it is created when moves begin and deleted when they end, and a second run finds
it. A scheduler that keeps what it says writes the record's id under `held`; nobody is evicted before.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gangline import InvalidObject, NodeView, PodInfo, model, texts
from gangline_plugins.defragmentation.plan import Plan, Step

CONFIG_MAP = "gangline-moves"
RECORD, HELD = "record", "held"
"""Keys of its data."""


class Hold(msgspec.Struct, frozen=True, rename="camel"):
    """Room on a node for a pod that a controller makes in place of one that was evicted."""

    owner: str
    """Which controller; see `owner_of`."""
    node: str
    requests: dict[str, int]
    known: list[str]
    """The UIDs of the controller's pods that were on the node before: the hold is not for them."""


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """All that is kept."""

    id: str
    until: float
    """Seconds since the epoch after which nobody keeps anything, should whoever moves have died."""
    profile: str
    """The schedulerName for which it is."""
    goal: str
    group: str
    """The key of the group for which the nodes are kept; "" for none."""
    nodes: list[str]
    """Nodes that are kept for the group, or for nobody."""
    holds: list[Hold]


def owner_of(pod: PodInfo) -> str:
    """The controller of a pod, NAMESPACE/UID, as pods of other namespaces may name the UID; "" where it has none."""
    return owner_in(pod.namespace, pod.controller)


def owner_in(namespace: str, controller: model.OwnerReference | None) -> str:
    """The controller of a pod in a namespace; "" where it has none."""
    return f"{namespace}/{controller.uid}" if controller is not None else ""


def record_of(plan: Plan, nodes: NodeView, id: str, until: float) -> Record:
    """What to keep while a plan is carried out, given all nodes."""
    holds = list(_holds(plan, nodes))
    return Record(id, until, plan.profile, plan.goal, plan.group, plan.frees, holds)


def _holds(plan: Plan, nodes: NodeView) -> Iterator[Hold]:
    for step in plan.steps:
        yield Hold(step.owner, step.destination, step.requests, _known(step, nodes))


def _known(step: Step, nodes: NodeView) -> list[str]:
    row = nodes.row_of(step.destination)
    pods = nodes.pods(row).values() if row is not None else ()
    return [pod.uid for pod in pods if step.owner and owner_of(pod) == step.owner]


def written(record: Record) -> dict[str, str]:
    """The data of the ConfigMap."""
    return {RECORD: msgspec.json.encode(record).decode()}


def read(config_map: model.ConfigMap) -> Record:
    """The record in a ConfigMap. Raises InvalidObject."""
    text = (config_map.data or {}).get(RECORD)
    where = f"ConfigMap {config_map.metadata.namespace}/{config_map.metadata.name}: data.{RECORD}"
    if text is None:
        raise InvalidObject(where, None, "is missing")
    return texts.from_json(where, text, Record)


def held(config_map: model.ConfigMap) -> str:
    """The id of the record that a scheduler keeps; "" for none."""
    return (config_map.data or {}).get(HELD, "")
