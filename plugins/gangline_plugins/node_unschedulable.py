"""NodeUnschedulable: only pods that tolerate the unschedulable taint may use cordoned nodes."""

from __future__ import annotations

from collections.abc import Sequence

from gangline import (
    NODE,
    SKIP,
    Action,
    CodeColumn,
    EventHint,
    NodeView,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    on,
    tolerations,
)


class NodeUnschedulable:
    """Reads spec.unschedulable."""

    name = "NodeUnschedulable"
    reads = NODE
    ignores_requests = True
    reasons = (Reason("node(s) were unschedulable", resolvable=False),)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A node that is new, or uncordoned."""
        return (on("nodes", Action.ADD | Action.UPDATE_NODE_TAINT),)

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter for a pod that tolerates cordoned nodes."""
        taint = tolerations.UNSCHEDULABLE_TAINT
        if any(tolerations.tolerates(t, taint) for t in pod.spec.tolerations):
            return SKIP
        return None

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        """Cordoned nodes."""
        return codes(nodes.unschedulable)
