"""The plugin's arguments."""

from __future__ import annotations

from typing import Annotated

import msgspec


class ReservationArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of Reservation."""

    default_max_runtime_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """The runtime, in seconds, assumed for a pod that states none. Without this argument such a pod is assumed never to
    end.
    """
    replan_seconds: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """Seconds for which a plan is kept before the same gang is planned for again."""
    max_reservation_seconds: Annotated[float, msgspec.Meta(gt=0)] = 14_400.0
    """Seconds after which a reservation ends in any case; its gang gets no reservation for as long after that."""
    longest_max_runtime_seconds: Annotated[float, msgspec.Meta(gt=0)] = 604_800.0
    """The longest `gangline.dev/max-runtime`, in seconds, that is believed; a longer one is cut to this, with an
    event.
    """
    require_max_runtime_permission: bool = True
    """Whether reservations of other namespaces believe `gangline.dev/max-runtime` only if the pod's namespace allows
    it.
    """
    require_reservation_permission: bool = False
    """Whether only gangs of namespaces that allow `reservation` get one."""
