"""Whether a pod may preempt others at all, and whom."""

from __future__ import annotations

from gangline import BoolColumn, NodeView, PodInfo

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION = "PreemptionByScheduler"


def may_preempt(pod: PodInfo, victim: PodInfo) -> bool:
    """Whether pod comes before victim."""
    return victim.priority < pod.priority


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


def is_being_preempted(pod: PodInfo) -> bool:
    """Whether a pod is on its way out because a scheduler preempted it."""
    condition = pod.conditions.get(DISRUPTION_TARGET)
    return pod.terminating and condition is not None and condition.status == "True" and condition.reason == PREEMPTION
