"""Kubernetes events: collected at once, written later, aggregated, and never in the way of a bind."""

from __future__ import annotations

from gangline.pods import PodInfo


class NoRecorder:
    """Records nothing; for what-if."""

    def event(self, pod: PodInfo, kind: str, reason: str, note: str, action: str = "Scheduling") -> None:
        """Nothing."""
