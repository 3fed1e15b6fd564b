"""How users learn of a recovery: events on the members, a condition, metrics, and log lines."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import StrEnum

from gangline import Handle, PodGroup, PodInfo
from gangline_plugins.recovery.conditions import RecoveryConditions

log = logging.getLogger(__name__)
_MOST_TOLD = 8
"""At most this many pods of a gang get an event."""
_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class RecoveryEnd(StrEnum):
    """How a recovery ended; the label of the metric."""

    RECOVERED = "recovered"
    """As many members as were lost have a node again."""
    RELEASED = "released"
    """No place was found in time, so the members that were left were evicted."""
    GIVEN_UP = "given-up"
    """The replacements did not come in time."""


class RecoveryNotices:
    """Writes the events, conditions, log lines and metrics of recoveries."""

    def __init__(self, handle: Handle) -> None:
        self.conditions = RecoveryConditions(handle)
        self._recorder = handle.recorder
        self._ended = handle.metric("gangline_recoveries", "Recoveries that ended, by how they ended.", ("outcome",))
        self._duration = handle.histogram(
            "gangline_recovery_duration_seconds",
            "From when a loss was seen until as many members as were lost have a node again.",
            _BUCKETS,
        )

    def began(self, group: PodGroup, pods: Collection[PodInfo], note: str) -> None:
        """Report that places were found and these pods are being removed."""
        self.conditions.recovers(group, "GangRecovering", note, without={pod.uid for pod in pods})
        self._tell(group, pods, "Normal", "GangRecovering", note)

    def waits(self, group: PodGroup, pods: Iterable[PodInfo], note: str) -> None:
        """Report that no place was found so far."""
        self.conditions.recovers(group, "GangRecoveryWaits", note)
        self._tell(group, pods, "Warning", "GangRecoveryWaits", note)

    def forced(self, pod: PodInfo, note: str) -> None:
        """Report that a member is deleted without its node's word."""
        log.warning("pod %s: %s", pod.key, note)
        self._recorder.event(pod, "Warning", "GangMemberForced", note, action="Recovering")

    def failed(self, group: PodGroup, pods: Iterable[PodInfo], note: str) -> None:
        """Report that these pods could not be removed. The recovery does not end with that: it is tried again later."""
        self.conditions.recovers(group, "GangRecoveryFailed", note)
        self._tell(group, pods, "Warning", "GangRecoveryFailed", note)

    def releases(self, group: PodGroup, pods: Iterable[PodInfo], note: str) -> None:
        """Report that no place was found in time, and that these pods are being evicted."""
        self.conditions.recovers(group, "GangReleasing", note)
        self._tell(group, pods, "Warning", "GangReleased", note)

    def released(self, group: PodGroup, note: str) -> None:
        """Report that the pods of which `releases` told were evicted."""
        self._ended.labels(RecoveryEnd.RELEASED.value).inc()
        self.conditions.ends(group.key, "GangReleased", note)

    def ended(self, group: PodGroup, pods: Iterable[PodInfo], outcome: RecoveryEnd, note: str, seconds: float) -> None:
        """Report the end of a recovery that took so many seconds."""
        self._ended.labels(outcome.value).inc()
        if outcome is RecoveryEnd.RECOVERED:
            self._duration.observe(seconds)
        kind = "Normal" if outcome is RecoveryEnd.RECOVERED else "Warning"
        reason = "GangRecovered" if outcome is RecoveryEnd.RECOVERED else "GangRecoveryFailed"
        self.conditions.ends(group.key, reason, note)
        self._tell(group, pods, kind, reason, note)

    def _tell(self, group: PodGroup, pods: Iterable[PodInfo], kind: str, reason: str, note: str) -> None:
        log.info("gang %s/%s: %s", group.namespace, group.name, note)
        for pod, _ in zip(pods, range(_MOST_TOLD), strict=False):
            self._recorder.event(pod, kind, reason, note, action="Recovering")
