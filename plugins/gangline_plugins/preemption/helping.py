"""Whether a preemption already makes room for a group."""

from __future__ import annotations

from gangline import GroupAttempt, Handle


def is_helped(handle: Handle, attempt: GroupAttempt) -> bool:
    """Whether a preemption is making room for the group: members of it are nominated."""
    own = {pod.uid for pod in attempt.pods}
    return any(not own.isdisjoint(pods) for pods in handle.nominated().values())
