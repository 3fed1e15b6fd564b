"""The recoveries that are under way, and the groups that would have to recover and find no place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gangline import Handle, PodGroup, PodInfo
from gangline_plugins.recovery.planning import RecoveryPlan

_LONGEST_PAUSE = 30.0


@dataclass(slots=True, eq=False)
class Recovering:
    """One group whose members are being replaced."""

    group: PodGroup
    since: float
    """On the monotonic clock: when the loss was seen."""
    until: float
    """On the monotonic clock: when the room is given up."""
    removed: frozenset[str]
    """The UIDs of the members that are being removed."""
    is_move: bool
    """Whether all members get new nodes, so that none is placed before those removed are gone."""
    places: list[tuple[PodInfo, str]]
    """The pods that are still to come, and where room is kept for them."""
    first: PodInfo
    """A member, for events."""

    def arrived(self, pod: PodInfo) -> None:
        """A pod of the group is bound: one pod fewer is to come, of the same kind and on the same node if possible."""
        if self.places:
            self.places.remove(max(self.places, key=lambda each: (each[0].cls is pod.cls, each[1] == pod.node_name)))


@dataclass(slots=True, eq=False)
class Stranded:
    """A group that has lost members, and has no place for them."""

    group: PodGroup
    since: float
    """On the monotonic clock: when this was first seen."""
    next_try: float
    """On the monotonic clock."""
    pause: float = 1.0
    """Seconds until the try after the next one."""
    is_told: bool = False


@dataclass(slots=True, eq=False)
class UnderWay:
    """All groups that recover, or would have to, by their keys."""

    handle: Handle
    recovering: dict[str, Recovering] = field(default_factory=dict)
    stranded: dict[str, Stranded] = field(default_factory=dict)

    def begin(self, group: PodGroup, plan: RecoveryPlan, since: float, until: float) -> None:
        """Keep the room of a plan."""
        pods = [*plan.lost, *plan.evicted]
        removed = frozenset(pod.uid for pod in pods)
        found = Recovering(group, since, until, removed, plan.is_move, list(plan.places), pods[0])
        self.recovering[group.key] = found
        self.stranded.pop(group.key, None)
        self.handle.expect(group.key, found.places)

    def arrived(self, key: str, pod: PodInfo) -> Recovering | None:
        """A pod of a group is bound; returns the recovery if nobody else is to come."""
        found = self.recovering.get(key)
        if found is None or pod.uid in found.removed:
            return None
        found.arrived(pod)
        self.handle.expect(key, found.places)
        return None if found.places else self.recovering.pop(key)

    def end(self, key: str) -> None:
        """Give the room of a group up."""
        if self.recovering.pop(key, None) is not None:
            self.handle.expect(key, ())

    def end_all(self) -> None:
        """Give all room up."""
        for key in list(self.recovering):
            self.end(key)
        self.stranded.clear()

    def late(self, now: float) -> list[Recovering]:
        """The recoveries that have taken too long."""
        return [each for each in self.recovering.values() if now >= each.until]

    def are_leaving(self, key: str) -> bool:
        """Whether members of a group that moves are still on their old nodes."""
        found = self.recovering.get(key)
        return found is not None and found.is_move and any(uid in self.handle.state.pods for uid in found.removed)

    def strand(self, group: PodGroup, now: float, since: float, pause: float = 0.0) -> Stranded:
        """A group has no place for lost members; it is tried again after `pause` seconds, or after twice as long as
        before.
        """
        found = self.stranded.get(group.key)
        if found is None:
            found = self.stranded[group.key] = Stranded(group, since, now + (pause or 1.0))
        else:
            found.pause = min(_LONGEST_PAUSE, 2.0 * found.pause)
            found.next_try = now + found.pause
        return found

    def rests(self, key: str, now: float) -> bool:
        """Whether a group without a place is not to be tried again yet."""
        found = self.stranded.get(key)
        return found is not None and now < found.next_try

    def due(self, now: float) -> list[Stranded]:
        """The groups without a place that are to be tried again."""
        return [each for each in self.stranded.values() if now >= each.next_try]

    def moments(self) -> Iterator[float]:
        """When, on the monotonic clock, something has to be looked at again."""
        yield from (each.until for each in self.recovering.values())
        yield from (each.next_try for each in self.stranded.values())
