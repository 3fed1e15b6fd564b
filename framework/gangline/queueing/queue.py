"""The pods that wait for a decision: what is tried now, what backs off, and what waits for the cluster to change.

Rules:
- A unit is in exactly one place: active, backing off, unschedulable, gated or in flight.
- A unit that was rejected leaves `unschedulable` when a cluster event comes that one of the plugins that
  rejected it registered and whose hint says that it may help, or after `max_unschedulable` seconds.
- A unit that was rejected, or took too long to decide, backs off before it is tried again: see `backing_off`.
- An event that comes while a unit is in flight is remembered; if the unit comes back rejected, it counts.
- Events cost a bounded time, and a namespace that takes much of the scheduler's time lets others pass: see `hinting`
  and `turns`.
- Pods of one group are one unit. Members that come while it is in flight join it when it lands.
- Members that come or go let a group that waits be looked at again: it may be enough now, or no longer contradictory.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.api.hints import ClusterEvent, EventHint
from gangline.queueing.backing_off import MAX_OVERRUN_BACKOFF, QueueSettings, due
from gangline.queueing.hinting import Flights, Happened
from gangline.queueing.nominating import Nominated, Nominations
from gangline.queueing.turns import Turns
from gangline.queueing.units import QUEUED, Place, Unit
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
    """Decides what is tried next; time comes in with each call."""

    def __init__(self, settings: QueueSettings | None = None) -> None:
        self._settings = settings or QueueSettings()
        self._profiles: dict[str, _Profile] = {}
        self._units: dict[str, Unit] = {}
        self._unit_of: dict[str, Unit] = {}
        self._active = Turns()
        self._backoff: list[tuple[float, int, Unit]] = []
        self._timers: list[tuple[float, int, Unit]] = []
        self._unschedulable: dict[str, Unit] = {}
        self._gated: dict[str, Unit] = {}
        self._wanting = Wanting()
        self._flights = Flights()
        self._nominated = Nominated()
        self._number = itertools.count()

    def serve(
        self,
        scheduler_name: str,
        sort_key: SortKey,
        pre_enqueue: PreEnqueue,
        events: Mapping[str, Sequence[EventHint] | None],
        group_key: GroupKey | None = None,
    ) -> None:
        """Queue the pods of a scheduler name; `events` holds what each plugin registers, None for everything.

        Pods with the same `group_key` are one unit.
        """
        self._profiles[scheduler_name] = _Profile(sort_key, pre_enqueue, group_key)
        self._wanting.serve(scheduler_name, events)

    def serve_only(self, scheduler_names: Container[str]) -> None:
        """Drop every other profile; whoever calls this removes the units that then have none."""
        self._profiles = {name: profile for name, profile in self._profiles.items() if name in scheduler_names}
        self._wanting.serve_only(scheduler_names)

    def configure(self, settings: QueueSettings) -> None:
        """Back off like this from now on."""
        self._settings = settings

    def serves(self, scheduler_name: str) -> bool:
        """Whether pods of this scheduler name are ours."""
        return scheduler_name in self._profiles

    # Pods come and go

    def add(self, pod: PodInfo, now: float) -> Unit:
        """A new pod that has no node."""
        key = self._group_of(pod)
        self._nominated.nominate(pod, pod.nominated_node_name)
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
        """One more member of a group that waits."""
        self._unit_of[pod.uid] = unit
        if unit.place is Place.IN_FLIGHT:
            unit.late.append(pod)
            return
        unit.members.append(pod)
        unit.leads = []
        self._changed(unit, now)

    def _changed(self, unit: Unit, now: float) -> None:
        """A unit that waits may be tried for what has changed of its own pods."""
        self._start_anew(unit, now)
        if unit.place is Place.GATED:
            self._take_gated(unit.uid)
            self._admit(unit, now)
        elif unit.place is Place.UNSCHEDULABLE:
            self._try_again(unit, now)

    def update(self, pod: PodInfo, now: float) -> None:
        """A waiting pod changed; it is tried at once when that may help it."""
        unit = self._unit_of.get(pod.uid)
        if unit is None:
            self.add(pod, now)
            return
        if unit.place is not Place.IN_FLIGHT and self._group_of(pod) != unit.group:
            self.remove(pod.uid)
            self.add(pod, now)
            return
        before = unit.replace(pod)
        if pod.nominated_node_name:
            self._nominated.nominate(pod, pod.nominated_node_name)
        else:
            self._nominated.renew(pod)
        if unit.place is Place.IN_FLIGHT:
            joins_others = bool(unit.group) and before.annotations != pod.annotations
            unit.changed = unit.changed or _matters(before, pod) or joins_others
            return
        if not _matters(before, pod) and not (unit.group and before.annotations != pod.annotations):
            return
        self._changed(unit, now)

    def remove(self, uid: str) -> PodInfo | None:
        """A pod was deleted, or has a node now."""
        unit = self._unit_of.get(uid)
        if unit is None:
            return None
        pod = next(member for member in (*unit.members, *unit.late) if member.uid == uid)
        self._drop(unit, {uid})
        return pod

    def _drop(self, unit: Unit, uids: Container[str]) -> None:
        """These members no longer wait; without any the unit is gone."""
        key = unit.uid
        for pod in (*unit.members, *unit.late):
            if pod.uid in uids:
                self._unit_of.pop(pod.uid, None)
                self._nominated.nominate(pod, "")
        members = [pod for pod in unit.members if pod.uid not in uids]
        late = [pod for pod in unit.late if pod.uid not in uids]
        if members or late:
            unit.members, unit.late = (members, late) if members else (late, [])
            unit.leads = []
            self._look_again(unit)
            return
        self._units.pop(key, None)
        self._flights.land(key)
        self._take_unschedulable(key)
        self._take_gated(key)
        unit.move(Place.GONE, unit.entered)  # what is left of it in a heap is passed over

    def placed_elsewhere(self, pod: PodInfo) -> None:
        """Somebody else has put a pod on a node: what waits of its group may be enough now."""
        keys = {profile.group_key(pod) for profile in self._profiles.values() if profile.group_key is not None}
        for unit in [unit for key in keys if (unit := self._units.get(key)) is not None]:
            self._look_again(unit)

    def start_over(self, now: float) -> None:
        """Try everything that waits: other rules hold now."""
        for unit in list(self._unschedulable.values()):
            self._try_again(unit, now)
        for unit in list(self._gated.values()):
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
        """Whether there is something to try now."""
        return len(self._active) > 0

    def counts(self) -> dict[str, int]:
        """How many pods wait where."""
        counts: dict[str, int] = dict.fromkeys(QUEUED, 0)
        for unit in self._units.values():
            if unit.place in counts:
                counts[unit.place] += len(unit.members)
        return counts

    # The cycle

    def pop(self, now: float) -> Unit | None:
        """The unit to try next, in flight from now on; None when nothing is due."""
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
        """Decisions on the units of a namespace have taken so long: see `turns`."""
        self._active.spent(namespace, seconds, now)

    def done(self, unit: Unit) -> None:
        """The unit was bound; it is no longer waiting."""
        self.leave(unit, {pod.uid for pod in unit.members})

    def leave(self, unit: Unit, uids: Container[str]) -> bool:
        """Some members of a unit were bound; says whether others are left, which `requeue` puts back."""
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
        """The unit comes back: rejected by plugins, or after a fault (which backs off and is tried again).

        It is tried again after `retry_after` seconds at the latest, and not before `backoff` seconds where that is
        given in place of the usual number.
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
            self._unschedulable[unit.uid] = unit
            self._wanting.begin(unit)
            if retry_after is not None:
                unit.wake_at = now + retry_after
                heapq.heappush(self._timers, (unit.wake_at, next(self._number), unit))

    def overrun(self, unit: Unit) -> float:
        """A decision on the unit took too long: for how many seconds it has to back off, twice as many each time."""
        unit.overruns += 1
        return self._settings.after_overrun(unit)

    def next_due(self, now: float) -> float | None:
        """Seconds until something will be due without any event; None when nothing will."""
        while self._backoff and not _backs_off(*self._backoff[0]):
            heapq.heappop(self._backoff)
        times = [due for due, _, _ in (*self._backoff[:1], *self._timers[:1])]
        if self._unschedulable:
            first = next(iter(self._unschedulable.values()))
            times.append(first.entered + self._settings.max_unschedulable)
        return max(0.0, min(times) - now) if times else None

    # The cluster changes

    def happened(self, event: ClusterEvent, old: Any, new: Any, now: float) -> int:
        """Move back what an event may help; returns how many units were moved."""
        happened = Happened(event, old, new)
        if self._flights and self._wanting.is_registered(event):
            self._flights.note(happened)
        moved, held = self._wanting.helped(happened, now, self._unschedulable.values(), self._gated.values())
        for unit in moved:
            self._try_again(unit, now)
        for unit in held:
            self._admit_again(unit, now)
        return len(moved) + sum(unit.place is not Place.GATED for unit in held)

    def activate(self, uids: Iterable[str], now: float) -> None:
        """Try these units as soon as they have backed off."""
        for uid in uids:
            if uid in self._unschedulable:
                self._try_again(self._unschedulable[uid], now)

    # Nominations

    def nominate(self, pod: PodInfo, node: str) -> None:
        """Room is being made for pod on a node; "" takes the nomination back."""
        self._nominated.nominate(pod, node)

    def nominated(self) -> Nominations:
        """Node name to the pods nominated to it, by UID."""
        return self._nominated.by_node

    # Moving between places

    def _look_again(self, unit: Unit) -> None:
        """Try a group as soon as time comes in next."""
        if unit.place in (Place.GATED, Place.UNSCHEDULABLE) and unit.wake_at != unit.entered:
            unit.wake_at = unit.entered
            heapq.heappush(self._timers, (unit.wake_at, next(self._number), unit))

    def _keep_together(self, unit: Unit, now: float) -> bool:
        """Queue those anew that turn out to be in another group, or in none; says whether anybody is left."""
        strangers = [pod for pod in unit.members if self._group_of(pod) != unit.group]
        if strangers:
            self._drop(unit, {pod.uid for pod in strangers})
            for pod in strangers:
                self.add(pod, now)
        return unit.place is not Place.GONE

    def _admit_again(self, unit: Unit, now: float) -> None:
        """What held a unit back has changed."""
        if self._keep_together(unit, now) and unit.place is Place.GATED:
            self._take_gated(unit.uid)
            self._admit(unit, now)

    def _admit(self, unit: Unit, now: float) -> None:
        status = self._profiles[unit.scheduler_name].pre_enqueue(unit.members)
        if status.is_success:
            self._activate(unit, now)
        else:
            unit.rejected_by = frozenset((status.plugin,))
            unit.message = status.message
            unit.move(Place.GATED, now)
            self._gated[unit.uid] = unit
            self._wanting.begin(unit)
            if status.code is Code.ERROR:  # a plugin's fault: nothing in the cluster need ever change for another try
                unit.wake_at = now + FAULT_RETRY
                heapq.heappush(self._timers, (unit.wake_at, next(self._number), unit))

    def _try_again(self, unit: Unit, now: float) -> None:
        """A unit is no longer unschedulable, as far as one can tell."""
        self._take_unschedulable(unit.uid)
        self._back_off_or_activate(unit, now)

    def _back_off_or_activate(self, unit: Unit, now: float) -> None:
        if unit.due > now:
            unit.move(Place.BACKOFF, now)
            heapq.heappush(self._backoff, (unit.due, next(self._number), unit))
        else:
            self._activate(unit, now)

    def _activate(self, unit: Unit, now: float) -> None:
        unit.move(Place.ACTIVE, now)
        unit.since = now
        if unit.complete is None:
            unit.complete = now
        key = self._profiles[unit.scheduler_name].sort_key(unit.pod, unit.added)
        self._active.push(key, unit)

    def _wake(self, now: float) -> None:
        """What has backed off, and what has been unschedulable for too long, becomes active."""
        while self._backoff and (self._backoff[0][0] <= now or not _backs_off(*self._backoff[0])):
            entry = heapq.heappop(self._backoff)
            if _backs_off(*entry):
                self._activate(entry[2], now)
        while self._timers and self._timers[0][0] <= now:
            due, _, unit = heapq.heappop(self._timers)
            if unit.wake_at != due:
                continue
            unit.wake_at = math.inf
            if unit.place is Place.UNSCHEDULABLE:
                self._try_again(unit, now)
            elif unit.place is Place.GATED:
                self._admit_again(unit, now)
        late = []
        for unit in self._unschedulable.values():  # in the order in which they entered
            if unit.entered + self._settings.max_unschedulable > now:
                break
            late.append(unit)
        for unit in late:
            self._try_again(unit, now)

    def _start_anew(self, unit: Unit, now: float) -> None:
        """The unit has changed: that it took too long no longer counts, which it may have once in a while."""
        if not unit.overruns or now < unit.renewed + MAX_OVERRUN_BACKOFF:
            return
        unit.overruns, unit.renewed = 0, now
        unit.due = min(unit.due, due(now, self._settings.after_rejection(unit)))
        if unit.place is Place.BACKOFF:
            heapq.heappush(self._backoff, (unit.due, next(self._number), unit))

    def _take_unschedulable(self, uid: str) -> None:
        unit = self._unschedulable.pop(uid, None)
        if unit is not None:
            self._wanting.end(unit)

    def _take_gated(self, uid: str) -> None:
        unit = self._gated.pop(uid, None)
        if unit is not None:
            self._wanting.end(unit)


def _backs_off(due: float, number: int, unit: Unit) -> bool:
    """Whether an entry of the heap still counts: its unit may have gone on, or be due at another time."""
    return unit.place is Place.BACKOFF and unit.due == due


def _matters(before: PodInfo, after: PodInfo) -> bool:
    """Whether a change of a waiting pod itself may make it schedulable."""
    return before.cls is not after.cls or before.labels is not after.labels or before.gates != after.gates
