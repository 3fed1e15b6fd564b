"""What has become of a ProvisioningRequest, by the conditions that the autoscaler has written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gangline import custom_resources, model, moments

_MOST_ATTEMPTS = 1_000_000
_MOST_SHOWN = 300


class RequestPhase(StrEnum):
    """What has become of a request; the value is the word in messages."""

    PENDING = "pending"
    """The autoscaler has not taken the request up."""
    ACCEPTED = "accepted"
    """The autoscaler carries the request out."""
    PROVISIONED = "provisioned"
    """The room is there."""
    FAILED = "failed"
    """The autoscaler cannot make the room."""
    EXPIRED = "expired"
    """The room is no longer kept for the pods."""
    REVOKED = "revoked"
    """The room was taken away."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of the request."""
        return self in (RequestPhase.FAILED, RequestPhase.EXPIRED, RequestPhase.REVOKED)

    @property
    def is_in_flight(self) -> bool:
        """Whether the autoscaler has still to do something for the request."""
        return self in (RequestPhase.PENDING, RequestPhase.ACCEPTED)


_CONDITIONS = (
    ("Failed", RequestPhase.FAILED),
    ("CapacityRevoked", RequestPhase.REVOKED),
    ("BookingExpired", RequestPhase.EXPIRED),
    ("Provisioned", RequestPhase.PROVISIONED),
    ("Accepted", RequestPhase.ACCEPTED),
)
"""The first of these conditions that is true says what has become of a request."""


@dataclass(frozen=True, slots=True)
class RequestState:
    """What a ProvisioningRequest says about itself, in its metadata and its conditions."""

    name: str
    namespace: str
    uid: str
    attempt: int
    phase: RequestPhase
    since: float
    """When the request came to this phase, in seconds since the epoch; 0 if the request does not say."""
    message: str
    """The autoscaler's reason and message for the phase."""


def state_of(request: model.ProvisioningRequest) -> RequestState:
    """The state of a request. Its values are not trusted: anybody may have written them."""
    metadata = request.metadata
    phase, since, message = RequestPhase.PENDING, metadata.creation_timestamp, ""
    found = {each.type: each for each in request.status.conditions if each.status == "True"}
    for type_, meant in _CONDITIONS:
        if type_ in found:
            condition = found[type_]
            phase, since = meant, condition.last_transition_time
            message = ": ".join(part for part in (condition.reason, condition.message) if part)[:_MOST_SHOWN]
            break
    written = (metadata.annotations or {}).get(custom_resources.PROVISIONING_ATTEMPT, "")
    return RequestState(
        metadata.name, metadata.namespace, metadata.uid, _number(written), phase, _moment(since), message
    )


def _number(text: str) -> int:
    """The number of an attempt; 1 for a text that is no such number."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_ATTEMPTS))
    return min(max(1, int(text)), _MOST_ATTEMPTS) if is_number else 1


def _moment(text: str | None) -> float:
    try:
        return moments.moment(text or "")
    except ValueError:
        return 0.0
