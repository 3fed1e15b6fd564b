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
- Handling events takes a bounded time: see `hinting`. The pods of a namespace that has used much of the scheduler's
  time let the pods of other namespaces pass: see `turns`.
- Members of a group that come while the group is in flight join it when it comes back.
- When a member of a waiting group comes or goes, the group is looked at again: it may now have enough members, or its
  members may no longer contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.api.hints import ClusterEvent, EventHint
from gangline.queueing.backing_off import MAX_OVERRUN_BACKOFF, QueueSettings, due
from gangline.queueing.hinting import Flights, Happened
from gangline.queueing.nominating import Nominated
from gangline.queueing.turns import Turns
from gangline.queueing.units import QUEUED, Place, Unit
from gangline.queueing.waking import Waking
from gangline.queueing.wanting import Wanting
from gangline.state.pods import PodInfo
from gangline.status import Code, Status

SortKey = Callable[[PodInfo, float], tuple[float, ...]]
PreEnqueue = Callable[[Sequence[PodInfo]], Status]
GroupKey = Callable[[PodInfo], str]
"""The key of a pod's group; "" for a pod on its own."""

FAULT_RETRY = 60.0
"""Seconds until a unit that a plugin's fault holds back is asked about again."""


@dataclass(slots=True)
class _Profile:
    """How the pods of one scheduler name are queued."""

    sort_key: SortKey
    pre_enqueue: PreEnqueue
    group_key: GroupKey | None = None


class SchedulingQueue:
    """Decides which unit is tried next. The caller passes the time to each method."""

    def __init__(self, settings: QueueSettings | None = None) -> None:
        self.nominations = Nominated()
        """The pods for which plugins make room."""
        self._settings = settings or QueueSettings()
        self._profiles: dict[str, _Profile] = {}
        self._units: dict[str, Unit] = {}
        self._unit_of: dict[str, Unit] = {}
        self._active = Turns()
        self._waking = Waking()
        self._wanting = Wanting()
        self._flights = Flights()

    def serve(
        self,
        scheduler_name: str,
        sort_key: SortKey,
        pre_enqueue: PreEnqueue,
        events: Mapping[str, Sequence[EventHint] | None],
        group_key: GroupKey | None = None,
    ) -> None:
        """Queue the pods of a scheduler name from now on.

        `events` holds the events that each plugin has registered, by plugin name; None stands for every event. Pods
        with the same `group_key` are one unit.
        """
        self._profiles[scheduler_name] = _Profile(sort_key, pre_enqueue, group_key)
        self._wanting.serve(scheduler_name, events)

    def serve_only(self, scheduler_names: Container[str]) -> None:
        """Drop all other profiles. The caller removes the units that have no profile afterwards."""
        self._profiles = {name: profile for name, profile in self._profiles.items() if name in scheduler_names}
        self._wanting.serve_only(scheduler_names)

    def configure(self, settings: QueueSettings) -> None:
        """Use these settings for backing off from now on."""
        self._settings = settings

    def serves(self, scheduler_name: str) -> bool:
        """Whether this scheduler handles pods of this scheduler name."""
        return scheduler_name in self._profiles

    # Pods come and go

    def add(self, pod: PodInfo, now: float) -> Unit:
        """Queue a new pod that has no node; returns the unit that the pod is in."""
        key = self._group_of(pod)
        self.nominations.nominate(pod, pod.nominated_node_name)
        unit = self._units.get(key) if key else None
        if unit is not None:
            self._join(unit, pod, now)
            return unit
        unit = Unit([pod], added=now, group=key)
        self._units[unit.uid] = self._unit_of[pod.uid] = unit
        self._admit(unit, now)
        return unit

    def _group_of(self, pod: PodInfo) -> str:
        group_key = self._profiles[pod.scheduler_name].group_key
        return group_key(pod) if group_key is not None else ""

    def _join(self, unit: Unit, pod: PodInfo, now: float) -> None:
        """Add a pod to a group that waits."""
        self._unit_of[pod.uid] = unit
        if unit.place is Place.IN_FLIGHT:
            unit.late.append(pod)
            return
        unit.members.append(pod)
        unit.leads = []
        self._changed(unit, now)

    def _changed(self, unit: Unit, now: float) -> None:
        """A pod of a waiting unit has changed, or come: the unit may be tried again."""
        self._start_anew(unit, now)
        if unit.place is Place.GATED:
            self._wanting.end(unit.uid)
            self._admit(unit, now)
        elif unit.place is Place.UNSCHEDULABLE:
            self._try_again(unit, now)

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
                self._changed(unit, now)
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
        key = unit.uid
        for pod in (*unit.members, *unit.late):
            if pod.uid in uids:
                self._unit_of.pop(pod.uid, None)
                self.nominations.nominate(pod, "")
        members = [pod for pod in unit.members if pod.uid not in uids]
        late = [pod for pod in unit.late if pod.uid not in uids]
        if members or late:
            unit.members, unit.late = (members, late) if members else (late, [])
            unit.leads = []
            self._look_again(unit)
            return
        self._units.pop(key, None)
        self._flights.land(key)
        self._wanting.end(key)
        unit.move(Place.GONE, unit.entered)  # what is left of it in a heap is passed over

    def placed_elsewhere(self, pod: PodInfo) -> None:
        """Another scheduler has put a pod on a node: the waiting members of its group may be enough now."""
        keys = {profile.group_key(pod) for profile in self._profiles.values() if profile.group_key is not None}
        for unit in [unit for key in keys if (unit := self._units.get(key)) is not None]:
            self._look_again(unit)

    def start_over(self, now: float) -> None:
        """Try all waiting units again, because the configuration has changed or everything has been listed."""
        for unit in list(self._wanting.unschedulable.values()):
            self._try_again(unit, now)
        for unit in list(self._wanting.gated.values()):
            self._admit_again(unit, now)

    def get(self, uid: str) -> Unit | None:
        """The waiting unit of a pod, or None."""
        return self._unit_of.get(uid)

    def group(self, key: str) -> Unit | None:
        """The waiting members of a group, or None."""
        return self._units.get(key)

    def __iter__(self) -> Iterator[Unit]:
        return iter(list(self._units.values()))

    @property
    def has_active(self) -> bool:
        """Whether a unit can be tried now."""
        return len(self._active) > 0

    def counts(self) -> dict[str, int]:
        """The number of waiting pods in each place."""
        counts: dict[str, int] = dict.fromkeys(QUEUED, 0)
        for unit in self._units.values():
            if unit.place in counts:
                counts[unit.place] += len(unit.members)
        return counts

    # The cycle

    def pop(self, now: float) -> Unit | None:
        """The unit to try next, which is in flight from now on; None when no unit is due."""
        self._wake(now)
        while (unit := self._active.pop(now)) is not None:
            if unit.place is Place.ACTIVE and self._keep_together(unit, now):
                unit.move(Place.IN_FLIGHT, now)
                unit.attempts += 1
                unit.changed = False
                self._flights.take(unit.uid)
                return unit
        return None

    def spent(self, namespace: str, seconds: float, now: float) -> None:
        """Deciding units of a namespace has taken this many seconds: see `turns`."""
        self._active.spent(namespace, seconds, now)

    def done(self, unit: Unit) -> None:
        """The unit was bound and no longer waits."""
        self.leave(unit, {pod.uid for pod in unit.members})

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
    ) -> None:
        """The unit comes back: plugins have rejected it, or a fault has happened.

        After a fault (`error`) the unit backs off and is tried again. The unit is tried again after `retry_after`
        seconds at the latest. It backs off for `backoff` seconds if that is given, else for the usual time.
        """
        if unit.place is Place.GONE:
            return
        events = self._flights.land(unit.uid)
        if self._units.get(unit.uid) is not unit:
            return
        unit.rejected_by = frozenset(rejected_by)
        unit.message = message
        unit.rejections += 1
        if unit.late:
            unit.members, unit.late, unit.leads = unit.members + unit.late, [], []
            unit.changed = True
        unit.due = due(now, self._settings.after_rejection(unit) if backoff is None else backoff)
        if error or unit.changed or not unit.rejected_by or self._wanting.is_helped(unit, events, now):
            self._back_off_or_activate(unit, now)
        else:
            unit.move(Place.UNSCHEDULABLE, now)
            self._wanting.begin(unit)
            if retry_after is not None:
                self._waking.look_at(unit, now + retry_after)

    def overrun(self, unit: Unit) -> float:
        """A decision on the unit took too long; returns the seconds to back off, twice as many each time."""
        unit.overruns += 1
        return self._settings.after_overrun(unit)

    def next_due(self, now: float) -> float | None:
        """Seconds until a unit becomes due even if no event comes; None when no unit will."""
        times = self._waking.times()
        if self._wanting.unschedulable:
            first = next(iter(self._wanting.unschedulable.values()))
            times.append(first.entered + self._settings.max_unschedulable)
        return max(0.0, min(times) - now) if times else None

    # The cluster changes

    def happened(self, event: ClusterEvent, old: Any, new: Any, now: float) -> int:
        """An event has come: move the units that it may help. Returns how many units were moved."""
        happened = Happened(event, old, new)
        if self._flights and self._wanting.is_registered(event):
            self._flights.note(happened)
        moved, held = self._wanting.helped(happened, now)
        for unit in moved:
            self._try_again(unit, now)
        for unit in held:
            self._admit_again(unit, now)
        return len(moved) + sum(unit.place is not Place.GATED for unit in held)

    def activate(self, uids: Iterable[str], now: float) -> None:
        """Try these units again as soon as they have backed off."""
        for uid in uids:
            if uid in self._wanting.unschedulable:
                self._try_again(self._wanting.unschedulable[uid], now)

    # Moving between places

    def _look_again(self, unit: Unit) -> None:
        """Try a gated or unschedulable unit again at the next call that passes the time."""
        if unit.place in (Place.GATED, Place.UNSCHEDULABLE) and unit.wake_at != unit.entered:
            self._waking.look_at(unit, unit.entered)

    def _keep_together(self, unit: Unit, now: float) -> bool:
        """Queue anew the members that now belong to another group or to none; returns whether others are left."""
        strangers = [pod for pod in unit.members if self._group_of(pod) != unit.group]
        if strangers:
            self._drop(unit, {pod.uid for pod in strangers})
            for pod in strangers:
                self.add(pod, now)
        return unit.place is not Place.GONE

    def _admit_again(self, unit: Unit, now: float) -> None:
        """The reason why the unit was gated may be gone: ask the `pre_enqueue` plugins again."""
        if self._keep_together(unit, now) and unit.place is Place.GATED:
            self._wanting.end(unit.uid)
            self._admit(unit, now)

    def _admit(self, unit: Unit, now: float) -> None:
        status = self._profiles[unit.scheduler_name].pre_enqueue(unit.members)
        if status.is_success:
            self._activate(unit, now)
        else:
            unit.rejected_by = status.held_by | {status.plugin}
            unit.message = status.message
            unit.move(Place.GATED, now)
            self._wanting.begin(unit)
            if status.code is Code.ERROR:  # a plugin's fault: nothing in the cluster need ever change for another try
                self._waking.look_at(unit, now + FAULT_RETRY)

    def _try_again(self, unit: Unit, now: float) -> None:
        """Take the unit out of `unschedulable`: it may be schedulable now."""
        self._wanting.end(unit.uid)
        self._back_off_or_activate(unit, now)

    def _back_off_or_activate(self, unit: Unit, now: float) -> None:
        if unit.due > now:
            unit.move(Place.BACKOFF, now)
            self._waking.back_off(unit)
        else:
            self._activate(unit, now)

    def _activate(self, unit: Unit, now: float) -> None:
        unit.move(Place.ACTIVE, now)
        unit.since = now
        if unit.complete is None:
            unit.complete = now
        # Whom room is kept for comes before all others of the same priority.
        since = -math.inf if self.nominations.is_expected(unit.group) else unit.added
        key = self._profiles[unit.scheduler_name].sort_key(unit.pod, since)
        self._active.push(key, unit)

    def _wake(self, now: float) -> None:
        """Activate the units that have backed off, and try again those that were unschedulable for too long."""
        for unit in self._waking.backed_off(now):
            self._activate(unit, now)
        for unit in self._waking.to_look_at(now):
            if unit.place is Place.UNSCHEDULABLE:
                self._try_again(unit, now)
            elif unit.place is Place.GATED:
                self._admit_again(unit, now)
        for unit in self._wanting.unschedulable_for(self._settings.max_unschedulable, now):
            self._try_again(unit, now)

    def _start_anew(self, unit: Unit, now: float) -> None:
        """The unit has changed: forget that decisions on it took too long.

        This happens at most once in MAX_OVERRUN_BACKOFF seconds, so that a unit that changes all the time still backs
        off.
        """
        if not unit.overruns or now < unit.renewed + MAX_OVERRUN_BACKOFF:
            return
        unit.overruns, unit.renewed = 0, now
        unit.due = min(unit.due, due(now, self._settings.after_rejection(unit)))
        if unit.place is Place.BACKOFF:
            self._waking.back_off(unit)
