"""Which waiting units are tried again because time has passed.

Two heaps hold the times: one for the ends of backoffs, one for units that are looked at again at a certain time, for
example a group that may use wider placements by then. A unit that leaves its place is not searched for in the heaps,
because that would take long with many units. Its entry becomes void instead, and is dropped when its time comes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

from gangline.queueing.units import Place, Unit
from gangline.queueing.void_entries import FEWEST, without_void

Entry = tuple[float, int, Unit]
Heap = list[Entry]
"""The time at which a unit is due, a number that no other entry has, and the unit."""


class Waking:
    """The units that wait for the end of their backoff, or for a time at which they are looked at.

    An entry of a unit that has moved on, or is due at another time, is void.
    """

    def __init__(self) -> None:
        self._backoff: Heap = []
        self._timers: Heap = []
        self._most_backoff = self._most_timers = FEWEST
        """When a heap has more entries than this, its void entries are dropped."""
        self._number = itertools.count()

    def __bool__(self) -> bool:
        """Whether there are entries, void ones included."""
        return bool(self._backoff or self._timers)

    def back_off(self, unit: Unit) -> None:
        """The unit backs off until `unit.due`."""
        heapq.heappush(self._backoff, (unit.due, next(self._number), unit))
        self._most_backoff = without_void(self._backoff, _backs_off, self._most_backoff)

    def look_at(self, unit: Unit, time: float) -> None:
        """Look at a gated or unschedulable unit at this time, even if no event comes."""
        unit.wake_at = time
        heapq.heappush(self._timers, (time, next(self._number), unit))
        self._most_timers = without_void(self._timers, _is_looked_at, self._most_timers)

    def backed_off(self, now: float) -> Iterator[Unit]:
        """Take the units whose backoff has ended."""
        heap = self._backoff
        while heap and (heap[0][0] <= now or not _backs_off(heap[0])):
            entry = heapq.heappop(heap)
            if _backs_off(entry):
                yield entry[2]

    def to_look_at(self, now: float) -> Iterator[Unit]:
        """Take the units whose time to be looked at has come; they may be in any place by now."""
        heap = self._timers
        while heap and heap[0][0] <= now:
            time, _, unit = heapq.heappop(heap)
            if unit.wake_at == time:
                unit.wake_at = math.inf
                yield unit

    def times(self) -> list[float]:
        """When the next unit has backed off, and when the next unit is looked at, if any."""
        while self._backoff and not _backs_off(self._backoff[0]):
            heapq.heappop(self._backoff)
        return [time for time, _, _ in (*self._backoff[:1], *self._timers[:1])]

    def backing_off(self) -> list[Unit]:
        """The units of all entries for the end of a backoff, void ones included."""
        return [unit for _, _, unit in self._backoff]


def _backs_off(entry: Entry) -> bool:
    """Whether an entry for the end of a backoff is still valid."""
    due, _, unit = entry
    return unit.place is Place.BACKOFF and unit.due == due


def _is_looked_at(entry: Entry) -> bool:
    """Whether a unit is still to be looked at, at the time of this entry."""
    time, _, unit = entry
    return unit.place is not Place.GONE and unit.wake_at == time
