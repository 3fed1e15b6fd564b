"""What is decided in one cycle, and what the queue remembers of it."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import CLAIM


class Place(enum.StrEnum):
    """Where a unit is; the value is the word for it in metrics and messages."""

    NEW = "new"
    """It has not been queued."""
    GATED = "gated"
    """Plugins do not let it be tried, or a group has too few members."""
    ACTIVE = "active"
    """It is tried when its turn comes."""
    IN_FLIGHT = "in flight"
    """It is being decided or bound."""
    BACKOFF = "backoff"
    """It was tried not long ago, and is tried again in a while."""
    UNSCHEDULABLE = "unschedulable"
    """It was rejected, and waits for the cluster to change."""
    GONE = "gone"
    """None of its pods waits any more."""


QUEUED = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
"""Where a unit waits that nobody works on."""
NEXT: Mapping[Place, frozenset[Place]] = {
    Place.NEW: frozenset((Place.ACTIVE, Place.GATED)),
    Place.GATED: frozenset((Place.GATED, Place.ACTIVE, Place.GONE)),
    Place.ACTIVE: frozenset((Place.IN_FLIGHT, Place.GONE)),
    Place.IN_FLIGHT: frozenset((Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GONE)),
    Place.BACKOFF: frozenset((Place.ACTIVE, Place.GONE)),
    Place.UNSCHEDULABLE: frozenset((Place.ACTIVE, Place.BACKOFF, Place.GONE)),
    Place.GONE: frozenset(),
}
"""Where a unit may go from each place. What is gated may be asked again and stay so."""


@dataclass(slots=True, eq=False)
class Unit:
    """What is decided in one cycle: a pod, or the members of a group that wait for a node."""

    members: list[PodInfo]
    added: float
    """When it was first queued."""
    since: float = 0.0
    """When it was last put into the active queue."""
    complete: float | None = None
    """When it was put there first: for a group, when enough of its members had come."""
    overruns: int = 0
    """Decisions that took too long, since a change let it start anew."""
    renewed: float = -math.inf
    """When that was."""
    attempts: int = 0
    rejections: int = 0
    """Attempts that counted towards backing off."""
    rejected_by: frozenset[str] = frozenset()
    message: str = ""
    place: Place = Place.NEW
    """Where it is; changed by `move` alone."""
    due: float = 0.0
    """When backing off ends."""
    entered: float = 0.0
    """When it entered its place."""
    changed: bool = False
    """Whether its pod changed while it was in flight, in a way that may help."""
    group: str = ""
    """The key of its group; "" for a pod on its own."""
    late: list[PodInfo] = field(default_factory=list)
    """Members that came while it was in flight."""
    wake_at: float = math.inf
    """When it is tried again whatever happens in the cluster."""
    leads: list[PodInfo] = field(default_factory=list)
    """One member of each pod class and claim, for hints; empty when that has to be worked out."""
    told: str = ""
    """What of a group that is held was told last."""
    scheduler_name: str = ""
    """Of the first pod, whoever leads the unit later."""

    def __post_init__(self) -> None:
        self.scheduler_name = self.scheduler_name or self.members[0].scheduler_name

    @property
    def pod(self) -> PodInfo:
        """The pod that leads the unit."""
        return self.members[0]

    @property
    def uid(self) -> str:
        """The unit's identity."""
        return self.group or self.members[0].uid

    def move(self, place: Place, now: float) -> None:
        """Go to another place. Raises ValueError for one that cannot be reached from here."""
        if place not in NEXT[self.place]:
            raise ValueError(f"the unit {self.uid} cannot go from {self.place.name} to {place.name}")
        self.place = place
        self.entered = now

    def kinds(self) -> list[PodInfo]:
        """One member of each pod class and claim."""
        if not self.leads:
            self.leads = list({(pod.cls.id, pod.annotations.get(CLAIM)): pod for pod in self.members}.values())
        return self.leads

    def everybody(self) -> list[PodInfo]:
        """All members, the late ones too."""
        return [*self.members, *self.late]

    def member(self, uid: str) -> PodInfo | None:
        """The newest record of one of its pods."""
        return next((pod for pod in self.everybody() if pod.uid == uid), None)

    def replace(self, pod: PodInfo) -> PodInfo:
        """Put a newer record in the place of an older one; returns that."""
        for pods in (self.members, self.late):
            for i, member in enumerate(pods):
                if member.uid == pod.uid:
                    pods[i] = pod
                    self.leads = []
                    return member
        raise KeyError(pod.uid)
