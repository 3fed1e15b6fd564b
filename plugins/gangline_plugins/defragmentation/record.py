"""What is written down while moves are carried out, so that every scheduler process keeps the room: a ConfigMap.

`gangline-moves` is the lock as well: it is created when moves begin and deleted when they end, and a second run finds
it. A scheduler that keeps what it says writes the record's id under `held`; nobody is evicted before.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gangline import InvalidObject, NodeView, model
from gangline_plugins.defragmentation.plan import Plan, Step

CONFIG_MAP = "gangline-moves"
RECORD, HELD = "record", "held"
"""Keys of its data."""


class Hold(msgspec.Struct, frozen=True, rename="camel"):
    """Room on a node for a pod that a controller makes in place of one that was evicted."""

    owner: str
    """The UID of the controller."""
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
    return [pod.uid for pod in pods if pod.controller is not None and pod.controller.uid == step.owner]


def written(record: Record) -> dict[str, str]:
    """The data of the ConfigMap."""
    return {RECORD: msgspec.json.encode(record).decode()}


def read(config_map: model.ConfigMap) -> Record:
    """The record in a ConfigMap. Raises InvalidObject."""
    text = (config_map.data or {}).get(RECORD)
    where = f"ConfigMap {config_map.metadata.namespace}/{config_map.metadata.name}: data.{RECORD}"
    if text is None:
        raise InvalidObject(where, None, "is missing")
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.DecodeError as error:
        raise InvalidObject(where, None, " ".join(str(error).split())) from None


def held(config_map: model.ConfigMap) -> str:
    """The id of the record that a scheduler keeps; "" for none."""
    return (config_map.data or {}).get(HELD, "")
