"""NodeName: a pod that names its node gets no other node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gangline import (
    NODE,
    SKIP,
    Action,
    CodeColumn,
    Cycle,
    EventHint,
    NodeView,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    on,
)


class NodeName:
    """Compares spec.nodeName."""

    name = "NodeName"
    reads = NODE
    ignores_requests = True
    reasons = (Reason("node(s) didn't match the requested node name", resolvable=False),)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """The node may appear."""
        return (on("nodes", Action.ADD),)

    @hookimpl
    def identity(self, pod: PodInfo) -> Hashable:
        """The node that it names."""
        return pod.node_name or None

    @hookimpl
    def identity_all(self, pods: Sequence[PodInfo]) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        named = [pod.node_name for pod in pods]
        return [name or None for name in named] if any(named) else None

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter for pods that name no node."""
        return None if pod.node_name else SKIP

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """All nodes but the named one."""
        row = nodes.row_of(pod.node_name)
        return codes(nodes.rows != (-1 if row is None else row))
