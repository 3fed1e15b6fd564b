"""Rejected units of one kind: a decision about one of these units now would be the same for all of them.

An event that may help the units of a kind mostly makes room for a few of them. So the units are woken one by one, in
the order of the queue. When a woken unit is taken into flight, the next unit of the kind is woken, before any other
unit is tried. When a unit of the kind is rejected again by the same plugins, and no event that may help the kind has
come since the unit was taken, the other units would be rejected as well: they go on waiting.
"""

from __future__ import annotations

import heapq

from gangline.queueing.units import Unit
from gangline.queueing.void_entries import FEWEST, without_void

SortKey = tuple[float, ...]
_Entry = tuple[SortKey, int, int, Unit]


class Alike:
    """Unschedulable units of one kind, in the order of the queue."""

    __slots__ = ("_heap", "_most", "_there", "helped", "is_by_room", "is_tried")

    def __init__(self) -> None:
        self.helped: int | None = None
        """The number of the last event that may help the units; None if a unit was taken after it and rejected."""
        self.is_by_room = True
        """Whether all events since then that may help the units can do so by more room alone: pods have gone."""
        self.is_tried = False
        """Whether a unit of the kind was woken and is active; the next one is woken when this unit is taken."""
        self._heap: list[_Entry] = []
        self._there = 0
        self._most = FEWEST
        """When the heap has more entries than this, the entries of units that have moved on are dropped."""

    def __len__(self) -> int:
        return self._there

    def add(self, unit: Unit, key: SortKey, ticket: int) -> None:
        """A unit was rejected; `key` is its place in the order of the queue. No other entry has this ticket."""
        unit.ticket = ticket
        heapq.heappush(self._heap, (key, unit.arrival, ticket, unit))
        self._there += 1
        self._most = without_void(self._heap, _is_valid, self._most)

    def remove(self, unit: Unit) -> None:
        """The unit no longer waits with the other units of its kind."""
        unit.ticket = 0
        self._there -= 1

    def first(self) -> Unit | None:
        """The first unit in the order of the queue; None when no unit is left."""
        while self._heap and not _is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][3] if self._heap else None

    def rejected(self, unit: Unit) -> None:
        """A unit of this kind was rejected: the events that came before it was taken help none of these units."""
        if self.helped is not None and self.helped <= unit.taken:
            self.helps_none()

    def helps(self, event: int, is_by_room: bool) -> None:
        """An event may help the units; `event` is its number."""
        self.helped = event
        self.is_by_room = self.is_by_room and is_by_room

    def helps_none(self) -> None:
        """The events so far help none of the units."""
        self.helped, self.is_by_room = None, True


def _is_valid(entry: _Entry) -> bool:
    _, _, ticket, unit = entry
    return unit.ticket == ticket
