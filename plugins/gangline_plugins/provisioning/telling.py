"""How users learn of requests: events on the gang and its pods, metrics, and log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gangline import Handle, PodGroup, PodInfo
from gangline_plugins.provisioning.conditions import RequestPhase, RequestState

log = logging.getLogger(__name__)
_MOST_TOLD = 8
"""At most this many pods of a gang get an event."""
_REASONS = {
    RequestPhase.ACCEPTED: ("Normal", "ProvisioningAccepted"),
    RequestPhase.PROVISIONED: ("Normal", "Provisioned"),
    RequestPhase.FAILED: ("Warning", "ProvisioningFailed"),
    RequestPhase.EXPIRED: ("Warning", "ProvisioningExpired"),
    RequestPhase.REVOKED: ("Warning", "ProvisioningRevoked"),
}


class ProvisioningNotices:
    """Writes the events, log lines and metrics of requests."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._requests = handle.metric(
            "gangline_provisioning_requests",
            "ProvisioningRequests for gangs: made, accepted, provisioned, failed, expired, revoked.",
            ("event",),
        )
        self._in_flight = handle.gauge(
            "gangline_provisioning_requests_in_flight",
            "ProvisioningRequests that wait for the autoscaler.",
            ("profile",),
        )

    def asked(self, group: PodGroup, pods: Iterable[PodInfo], request: str, count: int) -> None:
        """Report that a request was made."""
        self._requests.labels("made").inc()
        self._tell(
            group, pods, "Normal", "ProvisioningRequested", f"ProvisioningRequest {request} asks for {count} pods"
        )

    def refused(self, group: PodGroup, pods: Iterable[PodInfo], why: str) -> None:
        """Report that no request can be made."""
        self._tell(group, pods, "Warning", "ProvisioningNotRequested", why)

    def became(self, group: PodGroup, pods: Iterable[PodInfo], request: RequestState, retry: float | None) -> None:
        """Report the phase of a request; the next request is made after `retry` seconds, or never if that is None."""
        reason = _REASONS.get(request.phase)
        if reason is None:
            return
        self._requests.labels(request.phase.value).inc()
        said = f" ({request.message})" if request.message else ""
        again = f"; the next one is made in {retry:.0f} s" if retry is not None else ""
        self._tell(group, pods, *reason, f"ProvisioningRequest {request.name} is {request.phase}{said}{again}")

    def show(self, in_flight: int) -> None:
        """Update the gauge."""
        self._in_flight.labels(self._handle.profile).set(in_flight)

    def _tell(self, group: PodGroup, pods: Iterable[PodInfo], kind: str, reason: str, note: str) -> None:
        log.info("gang %s/%s: %s", group.namespace, group.name, note)
        recorder, action = self._handle.recorder, "Provisioning"
        if group.object is not None:
            recorder.about(group.object, self._handle.profile, kind, reason, note, action)
        for pod, _ in zip(pods, range(_MOST_TOLD), strict=False):
            recorder.event(pod, kind, reason, note, action=action)
