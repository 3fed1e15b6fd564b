"""The recoveries that are under way, and the groups that would have to recover and find no place."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from math import inf

from gangline import Action, ClusterEvent, Handle, PodGroup, PodInfo
from gangline_plugins.recovery.planning import RecoveryPlan

LONGEST_PAUSE = 30.0
"""Seconds between two tries for a group without a place, at most."""
HAVE_LEFT = ClusterEvent("gangline.dev/recoveries", Action.UPDATE_OTHER)
"""Members of a recovering group have left, or are ending; their replacements have waited for this."""


@dataclass(slots=True, eq=False)
class Recovering:
    """One group whose members are being replaced."""

    group: PodGroup
    since: float
    """On the monotonic clock: when the loss was seen."""
    removed: frozenset[str]
    """The UIDs of the members that are being removed."""
    starts_anew: bool
    """Whether all members are removed, so that none of the new ones is placed before."""
    is_move: bool
    """Whether the members get new nodes, so that the old ones need not have left theirs before."""
    places: list[tuple[PodInfo, str]]
    """The pods that are still to come, and where room is kept for them."""
    first: PodInfo
    """A member, for events."""
    until: float = inf
    """On the monotonic clock: when the room is given up. It is kept while members are being removed."""
    is_held: bool = False
    """Whether new members had to wait for old ones when this was last looked at."""
    coming: dict[str, tuple[PodInfo, str]] = field(default_factory=dict)
    """By UID of each pod that is being bound: whom it is taken for."""

    @property
    def is_removing(self) -> bool:
        """Whether members are being removed now."""
        return self.until == inf

    @property
    def rooms(self) -> list[tuple[PodInfo, str]]:
        """The pods that are still to come and for which room is kept."""
        return [(pod, node) for pod, node in self.places if node]

    def comes(self, pod: PodInfo, node: str) -> None:
        """A pod of the group has a node: it is one of those to come, of its kind and for this node if possible."""
        if self.places:
            place = max(self.places, key=lambda each: (each[0].cls is pod.cls, each[1] == node))
            self.places.remove(place)
            self.coming[pod.uid] = place

    def comes_not(self, pod: PodInfo) -> None:
        """The pod has lost its node again."""
        place = self.coming.pop(pod.uid, None)
        if place is not None:
            self.places.append(place)


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
    has_failed: bool = False
    """Whether no plan was found; otherwise members that are lost meanwhile need not wait for the next try."""


@dataclass(slots=True, eq=False)
class UnderWay:
    """All groups that recover, or would have to, by their keys."""

    handle: Handle
    recovering: dict[str, Recovering] = field(default_factory=dict)
    stranded: dict[str, Stranded] = field(default_factory=dict)

    def begin(self, group: PodGroup, plan: RecoveryPlan, since: float) -> Recovering:
        """Keep the room of a plan until its end, or for as long as `are_removed` says."""
        pods = [*plan.lost, *plan.evicted]
        first = (pods or [pod for pod, _ in plan.places])[0]
        removed = frozenset(pod.uid for pod in pods)
        found = Recovering(group, since, removed, bool(plan.evicted), plan.is_move, list(plan.places), first)
        self.recovering[group.key] = found
        self.stranded.pop(group.key, None)
        self.handle.expect(group.key, found.rooms)
        return found

    def is_current(self, found: Recovering) -> bool:
        """Whether a recovery has neither ended nor made way for another one."""
        return self.recovering.get(found.group.key) is found

    def comes(self, key: str, pod: PodInfo, node: str) -> None:
        """A pod of a group has a node, and is about to be bound."""
        found = self.recovering.get(key)
        if found is not None and pod.uid not in found.removed:
            found.comes(pod, node)
            self.handle.expect(key, found.rooms)

    def comes_not(self, key: str, pod: PodInfo) -> None:
        """A pod of a group was not bound after all."""
        found = self.recovering.get(key)
        if found is not None:
            found.comes_not(pod)
            self.handle.expect(key, found.rooms)

    def arrived(self, key: str, pod: PodInfo) -> Recovering | None:
        """A pod of a group is bound; returns the recovery if nobody else is to come."""
        found = self.recovering.get(key)
        if found is None or found.coming.pop(pod.uid, None) is None or found.places or found.coming:
            return None
        return self.recovering.pop(key)

    def end(self, key: str) -> None:
        """Give the room of a group up."""
        found = self.recovering.pop(key, None)
        if found is not None:
            self.handle.expect(key, ())
            if found.is_held:
                self.handle.announce(HAVE_LEFT)

    def end_all(self) -> None:
        """Give all room up."""
        for key in list(self.recovering):
            self.end(key)
        self.stranded.clear()

    def late(self, now: float) -> list[Recovering]:
        """The recoveries that have taken too long."""
        return [each for each in self.recovering.values() if now >= each.until]

    def are_leaving(self, key: str, lost: Container[str]) -> bool:
        """Whether new members of a group that starts anew have to wait for old ones.

        Those on lost nodes may stay for long, so nobody waits for them. Where the group keeps its nodes, the old ones
        have to be gone; where it moves, it is enough that they end.
        """
        found = self.recovering.get(key)
        if found is None or not found.starts_anew:
            return False
        pods = [pod for uid in found.removed if (pod := self.handle.state.pods.get(uid)) is not None]
        there = [pod for pod in pods if pod.row >= 0 and pod.node_name not in lost]
        found.is_held = any(not found.is_move or not pod.terminating for pod in there)
        return found.is_held

    def held(self) -> list[str]:
        """The keys of the groups that were last seen to wait until their members have left."""
        return [key for key, each in self.recovering.items() if each.is_held]

    def await_room(self, group: PodGroup, now: float, pause: float) -> None:
        """A group that runs in part has no place for the rest; it is tried again in `pause` seconds at the latest."""
        found = self.stranded.setdefault(group.key, Stranded(group, now, now + pause))
        found.next_try = min(found.next_try, now + pause)

    def strand(self, group: PodGroup, now: float, since: float, pause: float = 1.0) -> Stranded:
        """A group has no place for lost members; it is tried again after `pause`, or after twice as long as before."""
        found = self.stranded.get(group.key)
        if found is None:
            found = self.stranded[group.key] = Stranded(group, since, now + pause)
        else:
            found.pause = min(LONGEST_PAUSE, 2.0 * found.pause)
            found.next_try = now + found.pause
        found.has_failed = True
        return found

    def forget(self, key: str) -> None:
        """A group does not wait for a place any more."""
        self.stranded.pop(key, None)

    def rests(self, key: str, now: float) -> bool:
        """Whether a group without a place is not to be tried again yet."""
        found = self.stranded.get(key)
        return found is not None and found.has_failed and now < found.next_try

    def due(self, now: float) -> list[Stranded]:
        """The groups without a place that are to be tried again."""
        return [each for each in self.stranded.values() if now >= each.next_try]

    def moments(self) -> Iterator[float]:
        """When, on the monotonic clock, something has to be looked at again."""
        yield from (each.until for each in self.recovering.values() if not each.is_removing)
        yield from (each.next_try for each in self.stranded.values())
