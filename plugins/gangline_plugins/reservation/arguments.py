"""The arguments of the plugin."""

from __future__ import annotations

from typing import Annotated

import msgspec


class ReservationArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments."""

    default_max_runtime_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Seconds that a pod is taken to run which does not say how long; without it such a pod is taken never to end."""
    replan_seconds: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """Seconds for which a plan stands while nothing better is asked for."""
    max_reservation_seconds: Annotated[float, msgspec.Meta(gt=0)] = 14_400.0
    """Seconds after which a reservation ends whatever was planned; its gang gets none for as long after that."""
    longest_max_runtime_seconds: Annotated[float, msgspec.Meta(gt=0)] = 604_800.0
    """Seconds that `gangline.dev/max-runtime` is believed at most; what says more is cut, with an event."""
    require_max_runtime_permission: bool = True
    """Reservations of other namespaces believe `gangline.dev/max-runtime` only of namespaces that allow it."""
    require_reservation_permission: bool = False
    """Only gangs of namespaces that allow `reservation` get one."""
