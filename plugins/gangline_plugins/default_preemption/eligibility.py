"""Whether a pod may preempt others at all."""

from __future__ import annotations

from gangline import BoolColumn, NodeView, PodInfo
from gangline_plugins.preemption.precedence import is_being_preempted, may_preempt


def why_not(pod: PodInfo, nominated: str, nodes: NodeView, resolvable: BoolColumn) -> str:
    """Why a pod may not preempt, in kube-scheduler's words; "" when it may.

    `nominated` is the node on which room is being made for it, `nodes` a view over all nodes, and `resolvable` says on
    which of them taking pods off could help.
    """
    if pod.spec.preemption_policy == "Never":
        return "not eligible due to preemptionPolicy=Never."
    row = nodes.row_of(nominated) if nominated else None
    if row is None or not resolvable[row]:
        return ""  # the room that was made there is of no use any more
    if any(may_preempt(pod, other) and is_being_preempted(other) for other in nodes.pods(row).values()):
        return "not eligible due to a terminating pod on the nominated node."
    return ""
