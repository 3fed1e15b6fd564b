"""The scheduling queue: which pods are tried now, which back off, and which wait for the cluster to change.

The queue holds units. A unit is one pod, or all waiting members of one pod group. A new unit is first asked of the
`pre_enqueue` plugins: if they let it in, the unit becomes active, else it is gated. `pop` takes the next active unit
and puts it in flight; the scheduler decides it. A unit that was bound leaves the queue (`done`). A unit that was
rejected comes back (`requeue`): it becomes unschedulable and waits there until a cluster event may help it. Then it
backs off, if it was rejected a short while ago, and becomes active again. So a pod that cannot be placed costs time
only when something has changed that may let it be placed.

Rules:
- A unit is in exactly one place: active, backing off, unschedulable, gated or in flight.
- A rejected unit leaves `unschedulable` when one of the plugins that rejected it has registered an event that happens,
  and the plugin's hint says that the event may help. It leaves after `max_unschedulable` seconds in any case.
- A unit that was rejected, or that took too long to decide, backs off before it is tried again: see `backing_off`.
- The queue remembers the events that come while a unit is in flight. If the unit comes back rejected, they count.
- Handling events takes a bounded time: see `hinting`. However many units an event may help, they are moved in slices
  (see `moving`), and of units that are decided alike one is tried before the others (see `alike`).
- The pods of a namespace that has used much of the scheduler's time let the pods of other namespaces pass: see `turns`.
- Members of a group that come while the group is in flight join it when it comes back.
- When a member of a waiting group comes or goes, the group is looked at again: it may now have enough members, or its
  members may no longer contradict each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gangline.api.hints import Action, ClusterEvent, EventHint
from gangline.queueing.alike import SortKey as Key
from gangline.queueing.backing_off import QueueSettings, due
from gangline.queueing.hinting import Flights, Happened
from gangline.queueing.moving import CountsRoom, Moving, QueuedProfile, counts_none
from gangline.queueing.nominating import Nominated
from gangline.queueing.units import QUEUED, Place, Unit
from gangline.state.pods import PodInfo
from gangline.status import Status

GONE = ClusterEvent("pods", Action.DELETE)
TOLD_AT_ONCE = 64
"""Pods of whose room one call tells others; it takes about 0.1 ms for each while many units wait."""
SortKey = Callable[[PodInfo, float], Key]
PreEnqueue = Callable[[Sequence[PodInfo]], Status]
GroupKey = Callable[[PodInfo], str]
"""The key of a pod's group; "" for a pod on its own."""


class SchedulingQueue:
    """Decides which unit is tried next. The caller passes the time to each method."""

    def __init__(self, settings: QueueSettings | None = None) -> None:
        self.nominations = Nominated(self._lacks_members)
        """The pods for which plugins make room."""
        self._units: dict[str, Unit] = {}
        self._unit_of: dict[str, Unit] = {}
        self._groups: dict[str, Unit] = {}
        """The units of groups, by the keys of the groups."""
        self._arrivals = itertools.count()
        self._flights = Flights()
        self._events = 0
        """The number of events that have come."""
        self._moving = Moving(self.nominations, self._keep_together)
        self._wanting = self._moving.wanting
        self.configure(settings or QueueSettings())

    def serve(
        self,
        scheduler_name: str,
        sort_key: SortKey,
        pre_enqueue: PreEnqueue,
        events: Mapping[str, Sequence[EventHint] | None],
        group_key: GroupKey | None = None,
        counts_room: CountsRoom = counts_none,
    ) -> None:
        """Queue the pods of a scheduler name from now on.

        `events` holds the events that each plugin has registered, by plugin name; None stands for every event. Pods
        with the same `group_key` are one unit. A unit that lacked room is not tried again only because pods have gone
        while what `counts_room` returns answers True.
        """
        self._moving.profiles[scheduler_name] = QueuedProfile(sort_key, pre_enqueue, group_key, counts_room)
        self._wanting.serve(scheduler_name, events)

    def serve_only(self, scheduler_names: Container[str]) -> None:
        """Drop all other profiles. The caller removes the units that have no profile afterwards."""
        profiles = self._moving.profiles
        self._moving.profiles = {name: profile for name, profile in profiles.items() if name in scheduler_names}
        self._wanting.serve_only(scheduler_names)

    def configure(self, settings: QueueSettings) -> None:
        """Use these settings for backing off from now on."""
        self._moving.settings = settings

    def serves(self, scheduler_name: str) -> bool:
        """Whether this scheduler handles pods of this scheduler name."""
        return scheduler_name in self._moving.profiles

    # Pods come and go

    def add(self, pod: PodInfo, now: float) -> Unit:
        """Queue a new pod that has no node; returns the unit that the pod is in."""
        key = self._group_of(pod)
        self.nominations.nominate(pod, pod.nominated_node_name)
        unit = self._units.get(key) if key else None
        if unit is not None:
            self._join(unit, pod, now)
            return unit
        unit = Unit([pod], now, next(self._arrivals), group=key)
        self._units[unit.uid] = self._unit_of[pod.uid] = unit
        if key:
            self._groups[key] = unit
        self._moving.admit(unit, now)
        return unit

    def _group_of(self, pod: PodInfo) -> str:
        group_key = self._moving.profiles[pod.scheduler_name].group_key
        return group_key(pod) if group_key is not None else ""

    def _join(self, unit: Unit, pod: PodInfo, now: float) -> None:
        """Add a pod to a group that waits."""
        self._unit_of[pod.uid] = unit
        if unit.place is Place.IN_FLIGHT:
            unit.late.append(pod)
            return
        self._moving.resize(unit, [*unit.members, pod])
        self._moving.changed(unit, now)

    def update(self, pod: PodInfo, now: float) -> PodInfo | None:
        """A waiting pod has changed. If the change may help the pod, its unit may be tried again.

        Returns the record of the pod before the change; None for a new pod.
        """
        unit = self._unit_of.get(pod.uid)
        if unit is None:
            self.add(pod, now)
            return None
        if unit.place is not Place.IN_FLIGHT and self._group_of(pod) != unit.group:
            before = self.remove(pod.uid)
            self.add(pod, now)
            return before
        before = unit.replace(pod)
        self.nominations.changed(before, pod)
        if unit.is_concerned(before, pod):
            if unit.place is Place.IN_FLIGHT:
                unit.changed = True
            else:
                self._moving.changed(unit, now)
        else:
            if unit.kind is not None and _differ(before, pod):
                self._moving.single_out(unit)
            if before.owners != pod.owners:
                self._wanting.has_new_owners(unit)
        return before

    def remove(self, uid: str) -> PodInfo | None:
        """Remove a pod that was deleted, or that has a node now; returns its record if it was waiting."""
        unit = self._unit_of.get(uid)
        if unit is None:
            return None
        pod = next(member for member in (*unit.members, *unit.late) if member.uid == uid)
        self._drop(unit, {uid})
        return pod

    def _drop(self, unit: Unit, uids: Container[str]) -> None:
        """Remove these members of a unit; a unit without members is gone."""
        key, everybody = unit.uid, unit.everybody()
        gone = [pod for pod in everybody if pod.uid in uids]
        for pod in gone:
            self._unit_of.pop(pod.uid, None)
            self.nominations.nominate(pod, "")
        if len(gone) < len(everybody):
            members = [pod for pod in unit.members if pod.uid not in uids]
            late = [pod for pod in unit.late if pod.uid not in uids]
            unit.late = late if members else []
            self._moving.resize(unit, members or late)
            self._moving.look_again(unit)
            return
        self._end(unit, key)

    def _end(self, unit: Unit, key: str) -> None:
        """No member of a unit waits any more."""
        self._units.pop(key, None)
        self._groups.pop(key, None)
        self._flights.land(key)
        self._wanting.end(key)
        self._moving.move(unit, Place.GONE, unit.entered)  # entries of the unit in heaps are void now

    def placed_elsewhere(self, pod: PodInfo) -> None:
        """Another scheduler has put a pod on a node: the waiting members of its group may be enough now."""
        if not self._groups:
            return
        keys = {profile.group_key(pod) for profile in self._moving.profiles.values() if profile.group_key is not None}
        for unit in [unit for key in keys if (unit := self._units.get(key)) is not None]:
            self._moving.look_again(unit)

    def start_over(self, now: float) -> None:
        """Try all waiting units again, because the configuration has changed or everything has been listed."""
        for unit in filter(None, map(self._units.get, self._flights)):
            unit.changed = True  # the decision on the unit began before the change
        self._moving.start_over()
        self._moving.move_helped(now)

    def get(self, uid: str) -> Unit | None:
        """The waiting unit of a pod, or None."""
        return self._unit_of.get(uid)

    def group(self, key: str) -> Unit | None:
        """The waiting members of a group, or None."""
        return self._units.get(key)

    def __iter__(self) -> Iterator[Unit]:
        return iter(list(self._units.values()))

    def groups(self) -> list[Unit]:
        """The units of groups."""
        return list(self._groups.values())

    @property
    def has_active(self) -> bool:
        """Whether a unit can be tried now, or units are to be moved before; units that others pass do not count."""
        return self._moving.has_work

    def counts(self) -> dict[str, int]:
        """The number of waiting pods in each place."""
        return {place: self._moving.pods[place] for place in QUEUED}

    # The cycle

    def pop(self, now: float) -> Unit | None:
        """The unit to try next, which is in flight from now on.

        None when no unit is due, or when other units have to be moved first. In the second case `has_active` is true:
        the caller lets other tasks run, and calls again.
        """
        if self.nominations.has_news and not self._tell_of_freed(now):
            return None
        if not self._moving.wake(now):
            return None
        while (unit := self._moving.active.pop(now)) is not None:
            if unit.place is Place.ACTIVE and self._keep_together(unit, now):
                self._moving.move(unit, Place.IN_FLIGHT, now)
                unit.taken = self._events
                unit.attempts += 1
                unit.changed = False
                self._flights.take(unit.uid)
                return unit
        return None

    def spent(self, namespace: str, seconds: float, now: float) -> None:
        """Deciding units of a namespace has taken this many seconds: see `turns`."""
        self._moving.active.spent(namespace, seconds, now)

    def pass_by(self, profile: str, is_passed: bool) -> None:
        """Whether the active units of a profile wait, and units of other profiles pass them."""
        self._moving.active.pass_by(profile, is_passed)

    def done(self, unit: Unit) -> None:
        """The unit was bound and no longer waits."""
        if unit.group or unit.late or len(unit.members) != 1 or unit.place is Place.GONE:
            self.leave(unit, {pod.uid for pod in unit.members})
            return
        (pod,) = unit.members
        self._unit_of.pop(pod.uid, None)
        self.nominations.nominate(pod, "")
        self._end(unit, pod.uid)

    def leave(self, unit: Unit, uids: Container[str]) -> bool:
        """Some members of a unit were bound. Returns whether other members are left; `requeue` puts them back."""
        if unit.place is not Place.GONE:
            self._drop(unit, uids)
        return unit.place is not Place.GONE

    def requeue(
        self,
        unit: Unit,
        rejected_by: Iterable[str],
        message: str,
        now: float,
        error: bool = False,
        retry_after: float | None = None,
        backoff: float | None = None,
        kind: Hashable | None = None,
        lack: object | None = None,
        alike: Sequence[Sequence[PodInfo]] = (),
        is_incomplete: bool = False,
    ) -> None:
        """The unit comes back: plugins have rejected it, or a fault has happened.

        If `kind` is given, these plugins would now reject each unit of an equal kind that they have rejected before.
        With `lack` the unit is tried again after pods have gone only if it no longer lacks room: see `serve`. `alike`
        are the members of a group that plugins have not told apart: an event may help only some of the members. A unit
        that `is_incomplete` keeps no room until a member comes. After a fault (`error`), or if no plugin is named, the
        unit backs off and is tried again, without an event. A rejected unit is tried again after `retry_after` seconds
        at the latest. The unit backs off for `backoff` seconds if that is given, else for the usual time.
        """
        if unit.place is Place.GONE:
            return
        events = self._flights.land(unit.uid)
        if self._units.get(unit.uid) is not unit:
            return
        unit.rejected_by, unit.kind, unit.lack = frozenset(rejected_by), kind, lack
        unit.tell_apart(alike)
        unit.message, unit.is_incomplete = message, is_incomplete
        unit.rejections += 1
        self._take_late(unit)
        unit.due = due(now, self._moving.settings.after_rejection(unit) if backoff is None else backoff)
        if error or unit.changed or not unit.rejected_by or self._wanting.is_helped(unit, events, now):
            self._moving.back_off_or_activate(unit, now)
        else:
            self._moving.reject(unit, now)
            if retry_after is not None:
                self._moving.waking.look_at(unit, now + retry_after)

    def _take_late(self, unit: Unit) -> None:
        """Pods that came while their unit was being decided are members from now on."""
        if unit.late:
            members, unit.late = unit.everybody(), []
            self._moving.resize(unit, members)
            unit.changed = True

    def overrun(self, unit: Unit) -> float:
        """A decision on the unit took too long; returns the seconds to back off, twice as many each time."""
        unit.overruns += 1
        return self._moving.settings.after_overrun(unit)

    def next_due(self, now: float) -> float | None:
        """Seconds until a unit becomes due even if no event comes; None when no unit will."""
        times = self._moving.waking.times()
        if (first := self._wanting.longest()) is not None:
            times.append(first.entered + self._moving.settings.max_unschedulable)
        return max(0.0, min(times) - now) if times else None

    # The cluster changes

    def happened(self, event: ClusterEvent, old: Any, new: Any, now: float) -> bool:
        """An event has come: move the units that it may help, or some of them; `pop` moves the others.

        Returns whether a unit may be tried because of that.
        """
        if self.nominations.has_news:
            self._tell_of_freed(now)
        self._note(event, old, new, now)
        return self._moving.move_helped(now)

    def _tell_of_freed(self, now: float) -> bool:
        """Others may use the room that nominated pods keep no longer, as they may use the room of deleted pods.

        Returns whether others know of all such room; if not, the next call goes on.
        """
        for pod in self.nominations.take_freed(TOLD_AT_ONCE):
            self._note(GONE, pod, None, now)
        return not self.nominations.has_news

    def _note(self, event: ClusterEvent, old: Any, new: Any, now: float) -> None:
        """An event has come: the units that it may help are to be moved."""
        self._events += 1
        happened = Happened(event, old, new)
        if self._flights and self._wanting.is_registered(event):
            self._flights.note(happened)
        if self._wanting.has_units:
            self._moving.help(self._wanting.helped(happened, now), self._events, event == GONE)

    def activate(self, uids: Iterable[str], now: float) -> None:
        """Try these units again as soon as they have backed off."""
        for uid in uids:
            if uid in self._wanting.unschedulable:
                self._moving.try_again(self._wanting.unschedulable[uid], now)

    def _keep_together(self, unit: Unit, now: float) -> bool:
        """Queue anew the members that now belong to another group or to none; returns whether the unit has others."""
        strangers = [pod for pod in unit.members if self._group_of(pod) != unit.group]
        if strangers:
            self._drop(unit, {pod.uid for pod in strangers})
            for pod in strangers:
                self.add(pod, now)
        return unit.place is not Place.GONE

    def _lacks_members(self, uid: str) -> bool:
        """Whether a pod waits for other members of its group to be created."""
        unit = self._unit_of.get(uid)
        return unit is not None and unit.lacks_members


def _differ(before: PodInfo, after: PodInfo) -> bool:
    """Whether this change of a pod may let plugins tell the pod from others of its kind."""
    return (
        before.annotations != after.annotations
        or before.owners != after.owners
        or before.nominated_in_status != after.nominated_in_status
    )
