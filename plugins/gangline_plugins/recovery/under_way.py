"""The recoveries that are under way, and the groups that would have to recover and find no place."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
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
    """Whether all members are removed, so that no new member is placed before the old members are gone."""
    is_move: bool
    """Whether all members get new nodes, so that new members need not wait until old members have left theirs."""
    places: list[tuple[PodInfo, str]]
    """The pods that are still to come, and where room is kept for them."""
    first: PodInfo
    """A member, for events."""
    until: float = inf
    """When the room is given up, on the monotonic clock; infinite while members are being removed."""
    failing_since: float | None = None
    """On the monotonic clock: since when attempts to place the new members fail although room is kept for them."""
    is_held: bool = False
    """Whether new members had to wait for old ones when this was last looked at."""
    coming: dict[str, tuple[PodInfo, str]] = field(default_factory=dict)
    """For each pod that is being bound, by UID: the entry of `places` whose room it uses."""

    @property
    def is_removing(self) -> bool:
        """Whether members are being removed now."""
        return self.until == inf

    @property
    def rooms(self) -> list[tuple[PodInfo, str]]:
        """The pods that are still to come and for which room is kept."""
        return [(pod, node) for pod, node in self.places if node]

    @property
    def how(self) -> str:
        """What was done for the group, for events."""
        if self.is_move:
            return "the gang has moved as a whole"
        return "all members have restarted" if self.starts_anew else "the others have run on"

    def comes(self, pod: PodInfo, node: str) -> None:
        """A pod of the group has a node: it takes one of `places`, if possible one of its class and this node."""
        self.failing_since = None
        if self.places:
            place = max(self.places, key=lambda each: (each[0].cls is pod.cls, each[1] == node))
            self.places.remove(place)
            self.coming[pod.uid] = place

    def comes_not(self, pod: PodInfo) -> None:
        """A pod was not bound after all: its place is to be taken again."""
        place = self.coming.pop(pod.uid, None)
        if place is not None:
            self.places.append(place)


@dataclass(slots=True, eq=False)
class Stranded:
    """A group that has lost members, and has no place for them."""

    group: PodGroup
    since: float
    """On the monotonic clock: when the loss was first seen."""
    next_try: float
    """On the monotonic clock."""
    pause: float = 1.0
    """Seconds until the try after the next one."""
    is_told: bool = False
    has_failed: bool = False
    """Whether no plan was found; otherwise members that are lost meanwhile need not wait for the next try."""
    is_releasing: bool = False
    """Whether the other members are being released now."""
    is_release_told: bool = False


@dataclass(slots=True, eq=False)
class UnderWay:
    """All groups that recover, and all that would have to but have no place, by their keys."""

    handle: Handle
    patience: float
    """Seconds for which room is kept although attempts to place the members fail."""
    recovering: dict[str, Recovering] = field(default_factory=dict)
    stranded: dict[str, Stranded] = field(default_factory=dict)
    _held_no_more: bool = False
    """Whether a recovery has ended while new members had to wait, and `announce` has not said so yet."""

    def begin(self, group: PodGroup, plan: RecoveryPlan, since: float) -> Recovering:
        """Keep the room of a plan until its end, or for as long as `are_removed` says."""
        self.end(group.key)
        pods = [*plan.lost, *plan.evicted]
        first = (pods or [pod for pod, _ in plan.places])[0]
        removed = frozenset(pod.uid for pod in pods)
        found = Recovering(group, since, removed, bool(plan.evicted), plan.is_move, list(plan.places), first)
        self.recovering[group.key] = found
        self.stranded.pop(group.key, None)
        self.handle.expect(group.key, found.rooms)
        return found

    def is_current(self, found: Recovering) -> bool:
        """Whether a recovery goes on: it has not ended, and no later recovery of the group has replaced it."""
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
        del self.recovering[key]
        self._held_no_more |= found.is_held
        return found

    def end(self, key: str) -> None:
        """Give up the room of a group. Call `announce` afterwards, once it is known whether the group recovers anew."""
        found = self.recovering.get(key)
        if found is not None:
            self.handle.expect(key, ())  # wakes pods of other groups; new members of this group still wait
            del self.recovering[key]
            self._held_no_more |= found.is_held

    def end_all(self) -> None:
        """Give all room up."""
        for key in list(self.recovering):
            self.end(key)
        self.stranded.clear()
        self.announce(())

    def late(self, now: float) -> list[Recovering]:
        """The recoveries that have taken too long."""
        return [each for each in self.recovering.values() if now >= each.until]

    def fails(self, key: str, now: float) -> None:
        """An attempt to place a group has failed although room is kept for it."""
        found = self.recovering[key]
        if found.failing_since is None:
            found.failing_since = now

    def failing(self, now: float, serves: Callable[[str], bool]) -> list[Recovering]:
        """The recoveries whose room is of no use: attempts have failed for too long, or they fail and pods may no
        longer use one of its nodes. `serves` says whether pods may use a node.
        """
        found = [(each, each.failing_since) for each in self.recovering.values() if not each.is_removing]
        return [
            each
            for each, since in found
            if since is not None and (now >= since + self.patience or not all(serves(node) for _, node in each.rooms))
        ]

    def are_leaving(self, key: str, lost: Container[str]) -> bool:
        """Whether new members of a group have to wait for old ones.

        They wait until all removed members are ending, the lost members too: as long as one of these counts as a
        member, new members would be placed beside it. If a group starts anew on its own nodes, they wait until the old
        members are gone; only old members on lost nodes are not waited for, because they may stay for long.
        """
        found = self.recovering.get(key)
        if found is None:
            return False
        pods = [pod for uid in found.removed if (pod := self.handle.state.pods.get(uid)) is not None]
        keeps_nodes = found.starts_anew and not found.is_move
        found.is_held = any(
            not pod.terminating or (keeps_nodes and pod.node_name not in lost) for pod in pods if pod.row >= 0
        )
        return found.is_held

    def announce(self, lost: Container[str]) -> None:
        """Wake the new members that had to wait for old members, if some need not wait any more."""
        held = [key for key, each in self.recovering.items() if each.is_held]
        if self._held_no_more or not all(self.are_leaving(key, lost) for key in held):
            self._held_no_more = False
            self.handle.announce(HAVE_LEFT)

    def await_room(self, group: PodGroup, now: float, pause: float) -> None:
        """A group that runs in part has no place for the rest; it is tried again in `pause` seconds at the latest."""
        found = self.stranded.setdefault(group.key, Stranded(group, now, now + pause))
        found.next_try = min(found.next_try, now + pause)

    def strand(self, group: PodGroup, now: float, since: float, pause: float = 1.0) -> Stranded:
        """A group has no place for lost members; it is tried again after `pause` seconds, which double each time."""
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
        return found is not None and (found.is_releasing or (found.has_failed and now < found.next_try))

    def due(self, now: float) -> list[Stranded]:
        """The groups without a place that are to be tried again."""
        return [each for each in self.stranded.values() if now >= each.next_try and not each.is_releasing]

    def moments(self) -> Iterator[float]:
        """When, on the monotonic clock, something has to be looked at again."""
        for each in self.recovering.values():
            if not each.is_removing:
                yield each.until if each.failing_since is None else min(each.until, each.failing_since + self.patience)
        yield from (each.next_try for each in self.stranded.values() if not each.is_releasing)
