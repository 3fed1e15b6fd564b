"""Which cluster events the rejected and the gated units wait for, and which of these units an event may help.

A rejected unit waits for the events that the plugins which rejected it have registered, with or without hints. Units
that the same plugins rejected wait for the same events, so they are kept together. An event for which no unit waits
costs nothing. Hints are asked about one unit of each kind (see `alike`): the answer holds for all units of the kind.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from gangline.api.hints import ANY_EVENT, ClusterEvent, EventHint, Hint, OwnEvent
from gangline.deadline import Deadline
from gangline.queueing.alike import Alike, SortKey
from gangline.queueing.concerned import Concerned
from gangline.queueing.hinting import Happened, HintTime
from gangline.queueing.units import Place, Unit
from gangline.state.pods import PodInfo

log = logging.getLogger(__name__)

_AT_ONCE = 64
"""About how many units hints are asked between two looks at the clock."""
_MOST_EVENTS = 1024
"""Different events for which it is remembered whether they are registered, and whom they may help."""
Each = TypeVar("Each", Alike, Unit)

Rejecters = tuple[str, frozenset[str]]
"""A scheduler name and the plugins that rejected a unit; units for which both are equal wait for the same events."""


@dataclass(slots=True)
class _Waiting:
    """The units that the same plugins rejected, or hold at the gate."""

    alone: dict[str, Unit] = field(default_factory=dict)
    """The unschedulable units without a kind, and the gated units, by UID."""
    alike: dict[object, Alike] = field(default_factory=dict)
    """The other unschedulable units by kind."""


class Helped(msgspec.Struct):
    """The units that an event may help."""

    alone: list[Unit] = msgspec.field(default_factory=list)
    """Units to try or to ask about again."""
    alike: list[Alike] = msgspec.field(default_factory=list)
    """Units to wake one by one."""


class Wanting:
    """Holds the units that wait for events. The caller passes the time."""

    def __init__(self) -> None:
        self.time = HintTime()
        self._hints: dict[str, dict[str, tuple[EventHint, ...]]] = {}
        """The registered events of each plugin, by scheduler name and plugin name."""
        self._is_registered: dict[ClusterEvent, bool] = {}
        """The answers of `is_registered` since the last change of `_hints`."""
        self._matching: dict[tuple[Rejecters, ClusterEvent], list[EventHint]] = {}
        """The hints that an event concerns, of some plugins that rejected units, since the last change of `_hints`."""
        self.unschedulable: OrderedDict[str, Unit] = OrderedDict()
        """The rejected units by UID, in the order in which they were rejected."""
        self.gated: dict[str, Unit] = {}
        """The gated units by UID."""
        self._waiting: dict[Rejecters, _Waiting] = {}
        self._concerned = Concerned()
        self._tickets = itertools.count(1)

    def serve(self, scheduler_name: str, events: Mapping[str, Sequence[EventHint] | None]) -> None:
        """`events` holds the events that each plugin of a profile has registered; None stands for every event."""
        self._hints[scheduler_name] = {
            plugin: (ANY_EVENT,) if given is None else tuple(given) for plugin, given in events.items()
        }
        self._forget()

    def serve_only(self, scheduler_names: Container[str]) -> None:
        """Drop all other profiles."""
        self._hints = {name: hints for name, hints in self._hints.items() if name in scheduler_names}
        self._forget()

    def _forget(self) -> None:
        """Forget what was worked out from other hints than there are now."""
        self._is_registered.clear()
        self._matching.clear()

    def begin(self, unit: Unit, key: SortKey = ()) -> Alike | None:
        """A gated or unschedulable unit waits from now on for the events of the plugins in its `rejected_by`.

        `key` is the place of a unit with a kind in the order of the queue. Returns the units of this kind, if the unit
        has one.
        """
        waiting = self._waiting.setdefault(_rejecters(unit), _Waiting())
        self._concerned.add(unit, self._hints_of(_rejecters(unit)))
        if unit.place is Place.GATED:
            self.gated[unit.uid] = unit
            unit.kind = None
        else:
            self.unschedulable[unit.uid] = unit
        if unit.kind is None:
            waiting.alone[unit.uid] = unit
            return None
        alike = waiting.alike.setdefault(unit.kind, Alike())
        alike.add(unit, key, next(self._tickets))
        return alike

    def end(self, uid: str) -> None:
        """The unit no longer waits for events, if it did."""
        unit = self.unschedulable.pop(uid, None) or self.gated.pop(uid, None)
        if unit is not None:
            self._concerned.remove(uid)
            self._part(unit)

    def single_out(self, unit: Unit) -> bool:
        """The unit has changed: what holds for its kind may not hold for the unit. It goes on waiting.

        Returns whether an event has come that may help the unit, and after which no unit of the kind was tried yet.
        """
        if unit.place is not Place.UNSCHEDULABLE or unit.kind is None:
            return False
        alike = self._part(unit)
        unit.kind = None
        self._waiting.setdefault(_rejecters(unit), _Waiting()).alone[unit.uid] = unit
        return alike is not None and alike.helped is not None

    def has_new_owners(self, unit: Unit) -> None:
        """A pod of the unit has other owners: other events may help the unit."""
        if unit.place in (Place.UNSCHEDULABLE, Place.GATED):
            self._concerned.remove(unit.uid)
            self._concerned.add(unit, self._hints_of(_rejecters(unit)))

    def _part(self, unit: Unit) -> Alike | None:
        """Take the unit from the units that the same plugins rejected; returns the units of its kind."""
        rejecters = _rejecters(unit)
        waiting = self._waiting[rejecters]
        alike = None
        if unit.kind is None:
            del waiting.alone[unit.uid]
        else:
            alike = waiting.alike[unit.kind]
            alike.remove(unit)
            if not alike:
                del waiting.alike[unit.kind]
        if not waiting.alone and not waiting.alike:
            del self._waiting[rejecters]
        return alike

    def is_registered(self, event: ClusterEvent) -> bool:
        """Whether any plugin has registered the event, even if no unit waits for it."""
        known = self._is_registered.get(event)
        if known is None:
            if len(self._is_registered) >= _MOST_EVENTS:  # plugins may announce events of any name
                self._is_registered.clear()
            registered = (hint for plugins in self._hints.values() for hints in plugins.values() for hint in hints)
            known = self._is_registered[event] = any(hint.event.matches(event) for hint in registered)
        return known

    def longest(self) -> Unit | None:
        """The unschedulable unit that was rejected the longest time ago."""
        return next(iter(self.unschedulable.values()), None)

    def everybody(self) -> Iterable[Unit]:
        """All unschedulable and gated units."""
        return itertools.chain(self.unschedulable.values(), self.gated.values())

    @property
    def has_units(self) -> bool:
        """Whether any unit waits for events."""
        return bool(self._waiting)

    def helped(self, happened: Happened, now: float) -> Helped:
        """The units that the event may help."""
        helped = Helped()
        wanting = [
            (waiting, hints)
            for each, waiting in self._waiting.items()
            if (hints := self._hints_for(each, happened.event))
        ]
        if not wanting:
            return helped
        until = self.time.begin(now)
        own: dict[EventHint, None] = {}
        for waiting, hints in wanting:
            own.update((hint, None) for hint in hints if isinstance(hint, OwnEvent))
            common = [hint for hint in hints if not isinstance(hint, OwnEvent)]
            if common:
                helped.alone += _helped(list(waiting.alone.values()), _itself, common, happened, until)
                helped.alike += _helped(list(waiting.alike.values()), Alike.first, common, happened, until)
        if own:
            helped.alone += _helped(self._concerned.by(own, happened), _itself, list(own), happened, until)
        self.time.end()
        return helped

    def is_helped(self, unit: Unit, events: list[Happened] | None, now: float) -> bool:
        """Whether one of the events may help the unit; True for None, which stands for too many events to remember."""
        if not events:
            return events is None
        until = self.time.begin(now)
        helps = any(_helps(unit, self._hints_for(_rejecters(unit), each.event), each, until) for each in events)
        self.time.end()
        return helps

    def _hints_for(self, rejecters: Rejecters, event: ClusterEvent) -> list[EventHint]:
        """The hints of these plugins that the event concerns."""
        key = rejecters, event
        known = self._matching.get(key)
        if known is None:
            if len(self._matching) >= _MOST_EVENTS:  # plugins may announce events of any name
                self._matching.clear()
            known = self._matching[key] = [hint for hint in self._hints_of(rejecters) if hint.event.matches(event)]
        return known

    def _hints_of(self, rejecters: Rejecters) -> list[EventHint]:
        scheduler_name, plugins = rejecters
        hints = self._hints[scheduler_name]
        return [hint for plugin in plugins for hint in hints.get(plugin, (ANY_EVENT,))]


def _rejecters(unit: Unit) -> Rejecters:
    return unit.scheduler_name, unit.rejected_by


def _itself(unit: Unit) -> Unit:
    return unit


def _helped(
    waiting: list[Each],
    lead: Callable[[Each], Unit | None],
    hints: Sequence[EventHint],
    happened: Happened,
    until: Deadline,
) -> list[Each]:
    """The entries of `waiting` whose `lead` the event may help.

    When the time for hints is used up (`until`), all entries that were not looked at yet are returned as well.
    """
    helped: list[Each] = []
    for start in range(0, len(waiting), _AT_ONCE):
        if until.passed:
            return helped + waiting[start:]
        part = waiting[start : start + _AT_ONCE]
        helped += [each for each in part if (unit := lead(each)) is not None and _helps(unit, hints, happened, until)]
    return helped


def _helps(unit: Unit, hints: Sequence[EventHint], happened: Happened, until: Deadline) -> bool:
    """Whether a plugin that rejected the unit has registered the event, and its hint agrees or cannot be asked."""
    for registered in hints:
        if registered.hint is None or until.passed:
            return True
        for pod in unit.kinds():
            if _agrees(registered.hint, pod, happened) or until.passed:
                return True
    return False


def _agrees(hint: Hint, pod: PodInfo, happened: Happened) -> bool:
    """The answer of a hint. A hint that raises counts as agreeing, as in kube-scheduler."""
    try:
        return bool(hint(pod, happened.old, happened.new))
    except Exception:  # a plugin's bug must not end the watch that brought the event
        log.exception("the hint of a plugin failed on %s of %s", happened.event.action, happened.event.resource)
        return True
