"""Which cluster events the rejected and the gated units wait for, and which of these units an event may help.

A rejected unit waits for the events that the plugins which rejected it have registered, with or without hints. Units
that the same plugins rejected wait for the same events, so they are counted together. An event for which no unit waits
costs nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Mapping, Sequence

from gangline.api.hints import ANY_EVENT, ClusterEvent, EventHint, Hint
from gangline.deadline import Deadline
from gangline.queueing.hinting import Happened, HintTime
from gangline.queueing.units import Place, Unit
from gangline.state.pods import PodInfo

log = logging.getLogger(__name__)

Rejecters = tuple[str, frozenset[str]]
"""A scheduler name and the plugins that rejected a unit; units alike in both wait for the same events."""


class Wanting:
    """Counts the units that wait for events. The caller passes the time."""

    def __init__(self) -> None:
        self.time = HintTime()
        self._hints: dict[str, dict[str, tuple[EventHint, ...]]] = {}
        """The registered events of each plugin, by scheduler name and plugin name."""
        self.unschedulable: dict[str, Unit] = {}
        """The rejected units by UID, in the order in which they were rejected."""
        self.gated: dict[str, Unit] = {}
        """The gated units by UID."""
        self._units: Counter[Rejecters] = Counter()

    def serve(self, scheduler_name: str, events: Mapping[str, Sequence[EventHint] | None]) -> None:
        """`events` holds the events that each plugin of a profile has registered; None stands for every event."""
        self._hints[scheduler_name] = {
            plugin: (ANY_EVENT,) if given is None else tuple(given) for plugin, given in events.items()
        }

    def serve_only(self, scheduler_names: Container[str]) -> None:
        """Drop all other profiles."""
        self._hints = {name: hints for name, hints in self._hints.items() if name in scheduler_names}

    def begin(self, unit: Unit) -> None:
        """A gated or unschedulable unit waits from now on for the events of the plugins in its `rejected_by`."""
        held = self.gated if unit.place is Place.GATED else self.unschedulable
        held[unit.uid] = unit
        self._units[_rejecters(unit)] += 1

    def end(self, uid: str) -> None:
        """The unit no longer waits for events, if it did."""
        unit = self.unschedulable.pop(uid, None) or self.gated.pop(uid, None)
        if unit is None:
            return
        rejecters = _rejecters(unit)
        self._units[rejecters] -= 1
        if not self._units[rejecters]:
            del self._units[rejecters]

    def is_registered(self, event: ClusterEvent) -> bool:
        """Whether any plugin has registered the event, even if no unit waits for it."""
        registered = (hint for plugins in self._hints.values() for hints in plugins.values() for hint in hints)
        return any(hint.event.matches(event) for hint in registered)

    def unschedulable_for(self, seconds: float, now: float) -> list[Unit]:
        """The units that were rejected so long ago, or longer."""
        found = []
        for unit in self.unschedulable.values():
            if unit.entered + seconds > now:
                break
            found.append(unit)
        return found

    def helped(self, happened: Happened, now: float) -> tuple[list[Unit], list[Unit]]:
        """The unschedulable and the gated units that the event may help."""
        wanting = {each: hints for each in self._units if (hints := self._hints_of(each, happened.event))}
        if not wanting:
            return [], []
        until = self.time.begin(now)
        rejected, gated = (
            [unit for unit in units if _helps(unit, wanting.get(_rejecters(unit), ()), happened, until)]
            for units in (self.unschedulable.values(), self.gated.values())
        )
        self.time.end()
        return rejected, gated

    def is_helped(self, unit: Unit, events: list[Happened] | None, now: float) -> bool:
        """Whether one of the events may help the unit; True for None, which stands for too many events to remember."""
        if not events:
            return events is None
        until = self.time.begin(now)
        helps = any(_helps(unit, self._hints_of(_rejecters(unit), each.event), each, until) for each in events)
        self.time.end()
        return helps

    def _hints_of(self, rejecters: Rejecters, event: ClusterEvent) -> list[EventHint]:
        scheduler_name, plugins = rejecters
        hints = self._hints[scheduler_name]
        return [hint for plugin in plugins for hint in hints.get(plugin, (ANY_EVENT,)) if hint.event.matches(event)]


def _rejecters(unit: Unit) -> Rejecters:
    return unit.scheduler_name, unit.rejected_by


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
