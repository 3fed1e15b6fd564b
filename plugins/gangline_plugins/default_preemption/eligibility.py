"""Whether a pod may preempt other pods."""

from __future__ import annotations

from gangline import BoolColumn, NodeView, PodInfo
from gangline_plugins.preemption.precedence import is_being_preempted, may_preempt


def why_not(pod: PodInfo, nominated: str, nodes: NodeView, resolvable: BoolColumn) -> str:
    """Why a pod may not preempt, in kube-scheduler's words; "" if it may.

    `nominated` is the node on which room is being made for the pod, `nodes` a view of all nodes. `resolvable` marks the
    nodes on which removing pods could help.
    """
    if pod.spec.preemption_policy == "Never":
        return "not eligible due to preemptionPolicy=Never."
    row = nodes.row_of(nominated) if nominated else None
    if row is None or not resolvable[row]:
        return ""  # the pod can no longer use the room on the nominated node
    if any(may_preempt(pod, other) and is_being_preempted(other) for other in nodes.pods(row).values()):
        return "not eligible due to a terminating pod on the nominated node."
    return ""
