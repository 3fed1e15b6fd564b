"""Which cluster events the units want that were rejected or are held, and which of these units an event may help.

The plugins that rejected a unit have registered events, with hints or without. Units that the same plugins rejected
want the same events, so they are counted together, and an event that nobody wants costs nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from gangline.api.hints import ANY_EVENT, ClusterEvent, EventHint, Hint
from gangline.deadline import Deadline
from gangline.queueing.hinting import Happened, HintTime
from gangline.queueing.units import Unit
from gangline.state.pods import PodInfo

log = logging.getLogger(__name__)

Rejecters = tuple[str, frozenset[str]]
"""Scheduler name and the plugins that rejected a unit; units alike in both want the same events."""


class Wanting:
    """Keeps count of the units that wait for events; time comes in with each call."""

    def __init__(self) -> None:
        self.time = HintTime()
        self._hints: dict[str, dict[str, tuple[EventHint, ...]]] = {}
        """By scheduler name and plugin."""
        self._units: Counter[Rejecters] = Counter()

    def serve(self, scheduler_name: str, events: Mapping[str, Sequence[EventHint] | None]) -> None:
        """`events` holds what each plugin of a profile registers, None for everything."""
        self._hints[scheduler_name] = {
            plugin: (ANY_EVENT,) if given is None else tuple(given) for plugin, given in events.items()
        }

    def serve_only(self, scheduler_names: Container[str]) -> None:
        """Drop every other profile."""
        self._hints = {name: hints for name, hints in self._hints.items() if name in scheduler_names}

    def begin(self, unit: Unit) -> None:
        """A unit waits for events from now on, with `rejected_by` as it is."""
        self._units[_rejecters(unit)] += 1

    def end(self, unit: Unit) -> None:
        """It no longer does."""
        rejecters = _rejecters(unit)
        self._units[rejecters] -= 1
        if not self._units[rejecters]:
            del self._units[rejecters]

    def is_registered(self, event: ClusterEvent) -> bool:
        """Whether any plugin has registered an event, whoever waits."""
        registered = (hint for plugins in self._hints.values() for hints in plugins.values() for hint in hints)
        return any(hint.event.matches(event) for hint in registered)

    def helped(self, happened: Happened, now: float, *places: Iterable[Unit]) -> list[list[Unit]]:
        """For each of some places the units there that an event may help."""
        wanting = {each: hints for each in self._units if (hints := self._hints_of(each, happened.event))}
        if not wanting:
            return [[] for _ in places]
        until = self.time.begin(now)
        found = [
            [unit for unit in units if _helps(unit, wanting.get(_rejecters(unit), ()), happened, until)]
            for units in places
        ]
        self.time.end()
        return found

    def is_helped(self, unit: Unit, events: list[Happened] | None, now: float) -> bool:
        """Whether one of some events may help a unit; None for events that were too many to keep: one may have."""
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
    """Whether one of the plugins that rejected the unit wants the event, and its hint agrees or cannot be asked."""
    for registered in hints:
        if registered.hint is None or until.passed:
            return True
        for pod in unit.kinds():
            if _agrees(registered.hint, pod, happened) or until.passed:
                return True
    return False


def _agrees(hint: Hint, pod: PodInfo, happened: Happened) -> bool:
    """What a hint says; one that raises costs an attempt, as in kube-scheduler."""
    try:
        return bool(hint(pod, happened.old, happened.new))
    except Exception:  # a plugin's bug must not end the watch that brought the event
        log.exception("the hint of a plugin failed on %s of %s", happened.event.action, happened.event.resource)
        return True
