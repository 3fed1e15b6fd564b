"""A unit: the pods that are decided in one scheduling cycle, and what the queue remembers about them.

A pod on its own is a unit, and so are all waiting members of a group. Members that come while their group is in flight
are kept apart (`late`), because the decision does not know of them; they join when the unit returns to the queue.

A unit is always in exactly one `Place`. `NEXT` lists to which places it may go from there, so a mistake in the queue
is an error at the step that makes it, and not a pod that waits for ever.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import CLAIM, CONSUMED_CLASS, CONSUMED_REQUEST


class Place(enum.StrEnum):
    """The place of a unit in the queue; the value is its name in metrics and messages."""

    NEW = "new"
    """The unit has not been queued yet."""
    GATED = "gated"
    """Plugins do not let the unit be tried, or its group has too few members."""
    ACTIVE = "active"
    """The unit is tried when its turn comes."""
    IN_FLIGHT = "in flight"
    """The unit is being decided or bound."""
    BACKOFF = "backoff"
    """The unit was tried a short while ago, and is tried again when its backoff ends."""
    UNSCHEDULABLE = "unschedulable"
    """The unit was rejected, and waits for the cluster to change."""
    GONE = "gone"
    """No pod of the unit waits any more."""


QUEUED = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
"""The places of a unit that is not in flight."""
NEXT: Mapping[Place, frozenset[Place]] = {
    Place.NEW: frozenset((Place.ACTIVE, Place.GATED)),
    Place.GATED: frozenset((Place.GATED, Place.ACTIVE, Place.GONE)),
    Place.ACTIVE: frozenset((Place.IN_FLIGHT, Place.GONE)),
    Place.IN_FLIGHT: frozenset((Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GONE)),
    Place.BACKOFF: frozenset((Place.ACTIVE, Place.GONE)),
    Place.UNSCHEDULABLE: frozenset((Place.ACTIVE, Place.BACKOFF, Place.GONE)),
    Place.GONE: frozenset(),
}
"""The places to which a unit may move from each place. A gated unit may be asked again and stay gated."""


@dataclass(slots=True, eq=False)
class Unit:
    """The pods that are decided in one scheduling cycle: one pod, or the members of a group that wait for a node.

    Times are seconds, as the callers of the queue pass them.
    """

    members: list[PodInfo]
    added: float
    """When the unit was first queued."""
    arrival: int = 0
    """The number of units that were queued before."""
    since: float = 0.0
    """When the unit last became active."""
    complete: float | None = None
    """When the unit first became active: for a group, when enough of its members had come."""
    overruns: int = 0
    """The number of decisions that took too long, since a change of the unit last reset this number."""
    renewed: float = -math.inf
    """When a change of the unit last reset `overruns`."""
    attempts: int = 0
    rejections: int = 0
    """The number of attempts that lengthen the backoff."""
    rejected_by: frozenset[str] = frozenset()
    kind: Hashable | None = None
    """Equal for units that are decided alike, if the same plugins rejected them; None for a unit unlike all others."""
    lack: object | None = None
    """Of the last rejection, if the whole cluster had too little room: for `QueuedProfile.counts_room`."""
    taken: int = 0
    """The number of events that had come when the unit was last taken into flight."""
    ticket: int = 0
    """The number of the unit's last entry among the units of its kind; 0 if the unit does not wait there."""
    message: str = ""
    place: Place = Place.NEW
    """The place of the unit; only `move` changes it."""
    due: float = 0.0
    """When the backoff ends."""
    entered: float = 0.0
    """When the unit entered its place."""
    changed: bool = False
    """Whether a pod of the unit changed while the unit was in flight, in a way that may help."""
    group: str = ""
    """The key of the unit's group; "" for a pod on its own."""
    late: list[PodInfo] = field(default_factory=list)
    """Members that came while the unit was in flight."""
    wake_at: float = math.inf
    """When the unit is tried again even if no event has come."""
    leads: list[PodInfo] = field(default_factory=list)
    """One member of each kind, for hints; empty when `kinds` has to find them."""
    unlike: Mapping[str, int] = field(default_factory=dict)
    """A number for each member, by UID: equal for members that were alike for all plugins when the group was rejected.
    Empty if members of one class were alike.
    """
    is_incomplete: bool = False
    """Whether the group was last rejected because members are missing, and none has come since."""
    is_held: bool = False
    """Whether the group had enough members when it was last gated, and too few of them were let in."""
    told: str = ""
    """The last message about a group that is gated."""
    scheduler_name: str = ""
    """The scheduler name of the first pod, also when another pod leads the unit later."""

    def __post_init__(self) -> None:
        self.scheduler_name = self.scheduler_name or self.members[0].scheduler_name

    @property
    def pod(self) -> PodInfo:
        """The pod that leads the unit."""
        return self.members[0]

    @property
    def uid(self) -> str:
        """The key of the group, or the UID of a pod on its own."""
        return self.group or self.members[0].uid

    @property
    def lacks_members(self) -> bool:
        """Whether members of the group have to be created before it can be tried; such a group keeps no room."""
        return bool(self.group) and (self.is_incomplete or (self.place is Place.GATED and not self.is_held))

    def move(self, place: Place, now: float) -> None:
        """Move the unit to another place. Raises ValueError if that place cannot be reached from this one."""
        if place not in NEXT[self.place]:
            raise ValueError(f"the unit {self.uid} cannot go from {self.place.name} to {place.name}")
        self.place = place
        self.entered = now

    def kinds(self) -> list[PodInfo]:
        """One member for each pod class and set of claims (GpuClaim, ResourceClaims): hints are asked about these.

        Of members of one class that plugins have told apart, for example by their labels, one of each kind.
        """
        if not self.leads:
            unlike = self.unlike
            self.leads = list({(_kind(pod), unlike.get(pod.uid)): pod for pod in self.members}.values())
        return self.leads

    def tell_apart(self, alike: Sequence[Sequence[PodInfo]]) -> None:
        """The members in each of these sequences are alike for all plugins, and unlike all others; none if unknown."""
        classes = {pods[0].cls.id for pods in alike}
        if alike and (self.unlike or len(alike) > len(classes)):
            is_one_each = len(alike) == len(classes)
            self.unlike = {} if is_one_each else {pod.uid: n for n, pods in enumerate(alike) for pod in pods}
            self.leads = []

    def everybody(self) -> list[PodInfo]:
        """All members, the late ones included."""
        return [*self.members, *self.late]

    def member(self, uid: str) -> PodInfo | None:
        """The newest record of one of the unit's pods."""
        return next((pod for pod in self.everybody() if pod.uid == uid), None)

    def is_concerned(self, before: PodInfo, after: PodInfo) -> bool:
        """Whether this change of a pod may make the unit schedulable, or give the pod another group."""
        if before.cls is not after.cls or before.labels is not after.labels or before.gates != after.gates:
            return True
        if before.claims != after.claims or before.extended_claim != after.extended_claim:
            return True
        return bool(self.group) and _own(before.annotations) != _own(after.annotations)

    def replace(self, pod: PodInfo) -> PodInfo:
        """Replace the record of a pod by a newer one; returns the older one. Raises KeyError for an unknown pod."""
        for pods in (self.members, self.late):
            for i, member in enumerate(pods):
                if member.uid == pod.uid:
                    pods[i] = pod
                    self.leads = []
                    return member
        raise KeyError(pod.uid)


def _own(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """The annotations except the ones that the scheduler itself writes on waiting pods, for autoscalers."""
    if CONSUMED_REQUEST not in annotations and CONSUMED_CLASS not in annotations:
        return annotations
    return {key: value for key, value in annotations.items() if key not in (CONSUMED_REQUEST, CONSUMED_CLASS)}


def _kind(pod: PodInfo) -> Hashable:
    return pod.cls.id, pod.annotations.get(CLAIM), tuple(pod.claims.items()), pod.extended_claim
