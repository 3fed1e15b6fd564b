"""Which waiting units an event about few units may help, so that no other unit is looked at (see `OwnEvent`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from gangline.api.hints import EventHint, OwnEvent
from gangline.queueing.hinting import Happened
from gangline.queueing.units import Unit


class Concerned:
    """The waiting units, by the subjects of the events that may help them: see `OwnEvent.subjects`."""

    def __init__(self) -> None:
        self._units: dict[Hashable, dict[str, Unit]] = {}
        self._subjects: dict[str, tuple[Hashable, ...]] = {}

    def add(self, unit: Unit, hints: Iterable[EventHint]) -> None:
        """The unit waits for these events; it is not here yet."""
        asked = dict.fromkeys(hint.subjects for hint in hints if isinstance(hint, OwnEvent))
        found = dict.fromkeys(subject for ask in asked for pod in unit.kinds() for subject in ask(pod))
        if not found:
            return
        self._subjects[unit.uid] = tuple(found)
        for subject in found:
            self._units.setdefault(subject, {})[unit.uid] = unit

    def remove(self, uid: str) -> None:
        """The unit no longer waits, if it did."""
        for subject in self._subjects.pop(uid, ()):
            units = self._units[subject]
            del units[uid]
            if not units:
                del self._units[subject]

    def by(self, hints: Iterable[EventHint], happened: Happened) -> list[Unit]:
        """The units that an event is about, each once."""
        asked = dict.fromkeys(hint.about for hint in hints if isinstance(hint, OwnEvent))
        subjects = dict.fromkeys(about(happened.old, happened.new) for about in asked)
        return list({uid: unit for subject in subjects for uid, unit in self._units.get(subject, {}).items()}.values())
