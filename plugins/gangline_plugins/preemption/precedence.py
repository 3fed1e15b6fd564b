"""Which pod may preempt which, and which pods are already being preempted."""

from __future__ import annotations

from gangline import PodInfo

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION = "PreemptionByScheduler"
_NOT_STARTED = "~"
"""Sorts after every time stamp: a pod that has not started counts as starting now."""


def may_preempt(pod: PodInfo, victim: PodInfo) -> bool:
    """Whether the pod's priority is higher than the victim's."""
    return victim.priority < pod.priority


def is_marked(pod: PodInfo) -> bool:
    """Whether a scheduler has written on a pod that it preempts the pod."""
    condition = pod.conditions.get(DISRUPTION_TARGET)
    return condition is not None and condition.status == "True" and condition.reason == PREEMPTION


def is_being_preempted(pod: PodInfo) -> bool:
    """Whether a pod is terminating because a scheduler preempted it."""
    return pod.terminating and is_marked(pod)


def started(pod: PodInfo) -> str:
    """The start time of a pod, as a text that sorts."""
    return pod.start_time or _NOT_STARTED


def importance(pod: PodInfo) -> tuple[int, str, str]:
    """The sort key of victims: the most important comes first.

    Higher priority comes first, then the earlier start. Names only make the order of equal pods the same each time.
    """
    return -pod.priority, started(pod), pod.key
