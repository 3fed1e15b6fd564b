"""Moves units between the places where they wait, a limited number at a time.

However many units an event, a change of the configuration or the time sets in motion, one call moves a slice of them.
The rest is moved by the next calls, before the next unit is tried, so that the order in which units are tried does not
depend on the slices. In between watch events are handled.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gangline.queueing.alike import Alike, SortKey
from gangline.queueing.backing_off import MAX_OVERRUN_BACKOFF, QueueSettings, due
from gangline.queueing.nominating import Nominated
from gangline.queueing.token_bucket import TokenBucket
from gangline.queueing.turns import Turns
from gangline.queueing.units import Place, Unit
from gangline.queueing.waking import Waking
from gangline.queueing.wanting import Helped, Wanting
from gangline.state.pods import PodInfo
from gangline.status import Code, Status

SLICE = 256
"""Pods whose units one call moves, about; a unit is moved as a whole."""
COUNT_COST = 16
"""Counting the room for a group takes about as long as moving so many pods."""
COUNTS_PER_SECOND = 20.0
COUNTS_AT_ONCE = 40
"""How often the room for groups may be counted. A group beyond that is tried, which makes it back off if there is no
room: so groups of many kinds cannot take up all the time.
"""
FAULT_RETRY = 60.0
"""Seconds until a unit that a plugin's fault holds back is asked about again."""


LacksRoom = Callable[[Unit], bool]
"""Whether an attempt at a unit with `lack` would end as the last one did: too little room in the whole cluster."""
CountsRoom = Callable[[float], LacksRoom]
"""Called with the time. The answer holds as long as nothing in the cluster changes, and is asked about many units."""


def counts_none(now: float) -> LacksRoom:
    """A CountsRoom for which no unit lacks room."""
    return lambda unit: False


@dataclass(slots=True)
class QueuedProfile:
    """How the pods of one scheduler name are queued."""

    sort_key: Callable[[PodInfo, float], SortKey]
    pre_enqueue: Callable[[Sequence[PodInfo]], Status]
    group_key: Callable[[PodInfo], str] | None = None
    """The key of a pod's group; "" for a pod on its own."""
    counts_room: CountsRoom = counts_none


class Moving:
    """The places of units, and the units that are to be moved. The caller passes the time."""

    def __init__(self, nominations: Nominated, keep_together: Callable[[Unit, float], bool]) -> None:
        """`keep_together` queues anew the members that left a unit; returns whether the unit still has members."""
        self.settings = QueueSettings()
        self.profiles: dict[str, QueuedProfile] = {}
        self.active = Turns()
        self.waking = Waking()
        self.wanting = Wanting()
        self.pods: Counter[Place] = Counter()
        """The number of pods in each place."""
        self._nominations = nominations
        self._keep_together = keep_together
        self._again: OrderedDict[Unit, None] = OrderedDict()
        """Unschedulable and gated units that are to be tried or asked about again."""
        self._next: OrderedDict[Alike, None] = OrderedDict()
        """The units of each kind of which the first one, in the order of the queue, is to be woken."""
        self._trials: dict[Unit, Alike] = {}
        """The active units that were woken before the others of their kind, each with the units of its kind."""
        self._counts = TokenBucket(COUNTS_PER_SECOND, COUNTS_AT_ONCE)
        self._is_behind = False
        """Whether the last slice ended before all due units were moved."""

    @property
    def has_work(self) -> bool:
        """Whether a unit can be tried or moved now."""
        news = self._nominations.has_news
        return len(self.active) > 0 or self._is_behind or bool(self._again or self._next) or news

    # One unit

    def move(self, unit: Unit, place: Place, now: float) -> None:
        """Move a unit to another place. Raises ValueError if that place cannot be reached from the unit's place."""
        before, number, pods = unit.place, len(unit.members), self.pods
        unit.move(place, now)
        pods[before] -= number
        pods[place] += number
        if before is Place.ACTIVE and (alike := self._trials.pop(unit, None)) is not None:
            alike.is_tried = False
            self._next[alike] = None
        if place is Place.GONE:
            self._again.pop(unit, None)
        if unit.group:  # which may lack members now, or no longer
            self._nominations.touch_all(unit.everybody())

    def resize(self, unit: Unit, members: list[PodInfo]) -> None:
        """The unit has these members now."""
        self.pods[unit.place] += len(members) - len(unit.members)
        if len(members) > len(unit.members):
            unit.is_incomplete = False
        unit.members = members
        unit.leads = []
        self._nominations.touch_all(unit.everybody())

    def admit(self, unit: Unit, now: float) -> None:
        """Ask the `pre_enqueue` plugins whether a unit may be tried."""
        status = self.profiles[unit.scheduler_name].pre_enqueue(unit.members)
        if status.is_success:
            self._activate(unit, now)
            return
        unit.rejected_by = status.held_by | {status.plugin}
        unit.is_held = bool(status.held_by)
        unit.message = status.message
        self.move(unit, Place.GATED, now)
        self.wanting.begin(unit)
        if status.code is Code.ERROR:  # a plugin's fault may be over without any cluster event
            self.waking.look_at(unit, now + FAULT_RETRY)

    def admit_again(self, unit: Unit, now: float) -> None:
        """The reason why the unit was gated may be gone: ask the `pre_enqueue` plugins again."""
        if self._keep_together(unit, now) and unit.place is Place.GATED:
            self.wanting.end(unit.uid)
            self.admit(unit, now)

    def reject(self, unit: Unit, now: float) -> None:
        """The unit waits from now on until something happens that may help it."""
        key = self._key(unit) if unit.kind is not None else ()
        self.move(unit, Place.UNSCHEDULABLE, now)
        alike = self.wanting.begin(unit, key)
        if alike is not None:
            alike.rejected(unit)

    def try_again(self, unit: Unit, now: float) -> None:
        """Take the unit out of `unschedulable`: it may be schedulable now."""
        self.wanting.end(unit.uid)
        self.back_off_or_activate(unit, now)

    def back_off_or_activate(self, unit: Unit, now: float) -> None:
        """The unit is to be tried again, after its backoff."""
        if unit.due > now:
            self.move(unit, Place.BACKOFF, now)
            self.waking.back_off(unit)
        else:
            self._activate(unit, now)

    def look_again(self, unit: Unit) -> None:
        """Try a gated or unschedulable unit again at the next call that passes the time."""
        if unit.place in (Place.GATED, Place.UNSCHEDULABLE) and unit.wake_at != unit.entered:
            self.waking.look_at(unit, unit.entered)

    def changed(self, unit: Unit, now: float) -> None:
        """A pod of a waiting unit has changed, or come: the unit may be tried again."""
        self._start_anew(unit, now)
        if unit.place is Place.GATED:
            self.wanting.end(unit.uid)
            self.admit(unit, now)
        elif unit.place is Place.UNSCHEDULABLE:
            self.try_again(unit, now)

    def single_out(self, unit: Unit) -> None:
        """A pod of the unit has changed in a way that does not help, but tells the unit from others of its kind."""
        if self.wanting.single_out(unit):
            self._again[unit] = None

    def _start_anew(self, unit: Unit, now: float) -> None:
        """The unit has changed: forget that decisions on it took too long.

        This happens at most once in MAX_OVERRUN_BACKOFF seconds, so that a unit that changes all the time still backs
        off.
        """
        if not unit.overruns or now < unit.renewed + MAX_OVERRUN_BACKOFF:
            return
        unit.overruns, unit.renewed = 0, now
        unit.due = min(unit.due, due(now, self.settings.after_rejection(unit)))
        if unit.place is Place.BACKOFF:
            self.waking.back_off(unit)

    def _activate(self, unit: Unit, now: float) -> None:
        self.move(unit, Place.ACTIVE, now)
        unit.since = now
        if unit.complete is None:
            unit.complete = now
        self.active.push(self._key(unit), unit)

    def _key(self, unit: Unit) -> SortKey:
        # A group for which room is kept comes before all other units of the same priority.
        since = -math.inf if self._nominations.is_expected(unit.group) else unit.added
        return self.profiles[unit.scheduler_name].sort_key(unit.pod, since)

    # Many units

    def help(self, helped: Helped, event: int, is_by_room: bool) -> None:
        """An event may help these units; `event` is its number. `is_by_room`: it can help by more room alone."""
        for unit in helped.alone:  # one at a time: OrderedDict.update takes six times as long
            self._again[unit] = None
        for alike in helped.alike:
            alike.helps(event, is_by_room)
            self._next[alike] = None

    def start_over(self) -> None:
        """All unschedulable and gated units are to be moved, whatever they wait for."""
        for unit in self.wanting.everybody():
            self._again[unit] = None

    def move_helped(self, now: float) -> bool:
        """Move a slice of the units that something may help; returns whether a unit may be tried because of that.

        The first units of kinds are moved when the next unit is taken: many pods may go until then.
        """
        if not self._again:
            return bool(self._next)
        left, is_moved = SLICE, False
        for unit in self._alone(now):
            is_moved = is_moved or unit.place is not Place.GATED
            left -= max(1, len(unit.members))
            if left <= 0:
                break
        return is_moved or bool(self._again or self._next)

    def wake(self, now: float) -> bool:
        """Move a slice of the units that are to be moved, or whose time has come; returns whether no unit is left."""
        if not (self._again or self._next or self.waking or self._longest(now)):
            self._is_behind = False
            return True  # as for nearly every unit; the generators take as long as the rest of taking it
        left = SLICE
        for pods in self._due(now):
            left -= max(1, pods)
            if left <= 0:
                break
        self._is_behind = left <= 0
        return not self._is_behind

    def _due(self, now: float) -> Iterator[int]:
        """Move the units that are to be moved now, one at each step; yields about how many pods each step has cost."""
        for unit in self.waking.backed_off(now):
            self._activate(unit, now)
            yield len(unit.members)
        for unit in self.waking.to_look_at(now):
            self._look_at(unit, now)
            yield len(unit.members)
        while (first := self._longest(now)) is not None:
            self.try_again(first, now)
            yield len(first.members)
        for unit in self._alone(now):
            yield len(unit.members)
        yield from self._firsts(now)

    def _longest(self, now: float) -> Unit | None:
        """The unit that was rejected the longest time ago, if it has waited for so long that it is tried anyway."""
        first = self.wanting.longest()
        return first if first is not None and first.entered + self.settings.max_unschedulable <= now else None

    def _alone(self, now: float) -> Iterator[Unit]:
        """Move the units without a kind that something may help, one at each step."""
        while self._again:
            unit, _ = self._again.popitem(last=False)
            self._look_at(unit, now)
            yield unit

    def _firsts(self, now: float) -> Iterator[int]:
        """Move the first unit of each kind that something may help, or find that it does not; one at each step.

        The caller lets nothing happen between two steps, so the room is counted at one moment for all kinds.
        """
        lacks_room: dict[str, LacksRoom] = {}
        while self._next:
            alike, _ = self._next.popitem(last=False)
            first = alike.first() if alike.helped is not None and not alike.is_tried else None
            if first is None:
                continue
            cost = len(first.members)
            if alike.is_by_room and first.lack is not None and self._counts.take(now):
                name = first.scheduler_name
                if name not in lacks_room:
                    lacks_room[name] = self.profiles[name].counts_room(now)
                if lacks_room[name](first):
                    alike.helps_none()
                    yield COUNT_COST
                    continue
                cost += COUNT_COST
            self.try_again(first, now)
            if first.place is Place.ACTIVE:
                alike.is_tried = True
                self._trials[first] = alike
            else:  # this unit backs off, but the next one of the kind may not have to
                self._next[alike] = None
            yield cost

    def _look_at(self, unit: Unit, now: float) -> None:
        if unit.place is Place.UNSCHEDULABLE:
            self.try_again(unit, now)
        elif unit.place is Place.GATED:
            self.admit_again(unit, now)
