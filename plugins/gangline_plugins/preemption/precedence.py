"""Who comes before whom, and which pods are on their way out already."""

from __future__ import annotations

from gangline import PodInfo

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION = "PreemptionByScheduler"
_NOT_STARTED = "~"
"""Sorts after every time stamp: a pod that has not started counts as starting now."""


def may_preempt(pod: PodInfo, victim: PodInfo) -> bool:
    """Whether pod comes before victim."""
    return victim.priority < pod.priority


def is_being_preempted(pod: PodInfo) -> bool:
    """Whether a pod is on its way out because a scheduler preempted it."""
    condition = pod.conditions.get(DISRUPTION_TARGET)
    return pod.terminating and condition is not None and condition.status == "True" and condition.reason == PREEMPTION


def started(pod: PodInfo) -> str:
    """When a pod was started, as a text that sorts."""
    return pod.start_time or _NOT_STARTED


def importance(pod: PodInfo) -> tuple[int, str, str]:
    """The sort key of victims: the most important comes first.

    By priority, then the one that has run for longer; names only make equals come in the same order each time.
    """
    return -pod.priority, started(pod), pod.key
