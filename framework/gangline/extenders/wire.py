"""The bodies of requests to extenders and of their answers, as in k8s.io/kube-scheduler/extender/v1.

Rules:
- Requests have Go's field names, and null where Go has nil.
- Answers are read as Go reads them: the case of field names does not matter, and null counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gangline.model import Node, ObjectMeta, Pod, PodStatus, SchedulingGroup
from gangline.state.pods import PodInfo

Object = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)


class Sent(msgspec.Struct, frozen=True, rename="pascal"):
    """The base of all request bodies."""


class NodeList(msgspec.Struct, frozen=True):
    """A list of nodes."""

    items: list[Node]
    metadata: dict[str, str] = {}


class ExtenderArgs(Sent, frozen=True):
    """The request to filter and to prioritize; `nodes` or `node_names`, never both."""

    pod: Object
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class MetaPod(Sent, frozen=True):
    """A pod by its UID alone."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(Sent, frozen=True):
    """The victims on a node, by UID."""

    pods: list[MetaPod]
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class VictimObjects(Sent, frozen=True):
    """The victims on a node, as whole pods."""

    pods: list[Object]
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class ExtenderPreemptionArgs(Sent, frozen=True):
    """The request to preempt; victims by node name, in one of the two forms, never both."""

    pod: Object
    node_name_to_victims: dict[str, VictimObjects] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class ExtenderBindingArgs(Sent, frozen=True):
    """The request to bind."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class ExtenderAnswer(msgspec.Struct, frozen=True, rename=lambda name: name.replace("_", "")):
    """The base of all answers: field names in lower case, as `decode` makes them."""


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _NamedList(msgspec.Struct, frozen=True):
    items: list[_Named] | None = None


class ExtenderFilterResult(ExtenderAnswer, frozen=True):
    """The answer to filter; rejected nodes with the reason."""

    nodes: _NamedList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""

    def names(self, by_name: bool) -> list[str]:
        """The nodes that are left; an extender that got names may answer with names."""
        if by_name and self.node_names is not None:
            return self.node_names
        return [node.metadata.name for node in (self.nodes and self.nodes.items) or ()]


class HostPriority(ExtenderAnswer, frozen=True):
    """A node's score."""

    host: str = ""
    score: int = 0


class ExtenderBindingResult(ExtenderAnswer, frozen=True):
    """The answer to bind."""

    error: str = ""


class ReturnedVictims(msgspec.Struct, frozen=True):
    """The victims on a node that an extender proposes."""

    uids: tuple[str, ...]
    violations: int


class _ReturnedVictims(ExtenderAnswer, frozen=True):
    pods: list[Object] = []
    num_pdb_violations: int = 0


class _ReturnedPod(ExtenderAnswer, frozen=True):
    uid: str = ""


class _PreemptionResult(ExtenderAnswer, frozen=True):
    node_name_to_meta_victims: dict[str, Object | None] = {}


encode = msgspec.json.encode


def decode(body: bytes, type_: type[T]) -> T:
    """Decode an answer that is one object. Raises MsgspecError."""
    return _folded(msgspec.json.decode(body), type_)


def decode_priorities(body: bytes) -> list[HostPriority]:
    """Decode the answer to prioritize. Raises MsgspecError."""
    found = msgspec.json.decode(body, type=list[Any] | None)
    return [_folded(each, HostPriority) for each in found or ()]


def decode_victims(body: bytes) -> dict[str, ReturnedVictims]:
    """Decode the answer to preempt, by node name. Raises MsgspecError."""
    nodes = decode(body, _PreemptionResult).node_name_to_meta_victims
    return {name: _victims(each) for name, each in nodes.items()}


def _victims(returned: Object | None) -> ReturnedVictims:
    victims = _folded(returned, _ReturnedVictims)
    return ReturnedVictims(tuple(_folded(p, _ReturnedPod).uid for p in victims.pods), victims.num_pdb_violations)


def _folded(value: Any, type_: type[T]) -> T:
    if isinstance(value, Mapping):
        value = {key.lower(): item for key, item in value.items() if item is not None}
    return msgspec.convert({} if value is None else value, type_)


def pod_object(pod: PodInfo) -> Object:
    """A pod as it is sent to an extender: the fields that the scheduler keeps, with the API server's defaults."""
    group = SchedulingGroup(pod.group) if pod.group else None
    spec = msgspec.structs.replace(pod.spec, node_name=pod.node_name, scheduling_group=group)
    whole = Pod(
        metadata=ObjectMeta(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            resource_version=pod.resource_version,
            labels=dict(pod.labels),
            annotations=dict(pod.annotations),
            creation_timestamp=pod.created or None,
            owner_references=pod.owners,
        ),
        spec=spec,
        status=PodStatus(
            phase=pod.phase,
            nominated_node_name=pod.nominated_node_name,
            start_time=pod.start_time or None,
            conditions=list(pod.conditions.values()),
        ),
    )
    found: Object = msgspec.to_builtins(whole)
    found["spec"]["schedulerName"] = pod.scheduler_name  # a default is left out otherwise, and Go would read ""
    for container in (*found["spec"].get("containers", ()), *found["spec"].get("initContainers", ())):
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
    return found
