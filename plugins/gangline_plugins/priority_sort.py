"""PrioritySort: pods of higher priority first, older ones first among equals."""

from __future__ import annotations

from gangline import PodInfo, hookimpl


class PrioritySort:
    """Orders the queue."""

    name = "PrioritySort"

    @hookimpl
    def queue_sort(self, pod: PodInfo, since: float) -> tuple[float, ...]:
        """Falling priority, rising age."""
        return (-pod.priority, since)
