"""The plugin's arguments."""

from __future__ import annotations

from typing import Annotated

import msgspec

_CLASS = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
Parameter = Annotated[str, msgspec.Meta(max_length=255)]


class ProvisioningArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of Provisioning."""

    provisioning_class_name: Annotated[str, msgspec.Meta(max_length=253, pattern=_CLASS)] = (
        "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    )
    """The class of the requests: how the autoscaler carries them out."""
    parameters: Annotated[dict[str, Parameter], msgspec.Meta(max_length=100)] = {}
    """Parameters of the class, for example ValidUntilSeconds."""
    delay_seconds: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """Seconds for which a gang has no place before a request is made for it."""
    backoff_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Seconds from the failure of a request to the next request for the gang; doubled after each further failure."""
    max_backoff_seconds: Annotated[float, msgspec.Meta(gt=0)] = 1800.0
    """The longest time, in seconds, from the failure of a request to the next request."""
    max_in_flight: Annotated[int, msgspec.Meta(ge=1)] = 8
    """Requests that wait for the autoscaler, at most."""
    max_in_flight_per_namespace: Annotated[int, msgspec.Meta(ge=1)] = 4
    """Requests for gangs of one namespace that wait for the autoscaler, at most."""
