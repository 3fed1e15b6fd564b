"""The active units in order. The units of a namespace that has used much of the scheduler's time let others pass.

Rules:
- Units are taken in the order of their sort keys, as long as no namespace has used more time than it may. Units with
  equal keys are taken in the order of their arrival.
- A namespace may use ALLOWANCE seconds of deciding at once, and SHARE seconds of each second after that (a token
  bucket). A namespace that has used more is late: the units of other namespaces pass its units, unless its units have
  the higher priority.
- The units of one namespace keep their order among themselves. No unit waits while the scheduler has nothing else to
  do.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator

from gangline.queueing.units import Place, Unit
from gangline.queueing.void_entries import FEWEST, without_void

ALLOWANCE = 0.5
"""Seconds of deciding that a namespace may use at once."""
SHARE = 0.5
"""Seconds of deciding that a namespace may use in each second on average."""
MOST_NAMESPACES = 1024
"""Namespaces with an account of used time; when there are more, the settled accounts are dropped."""

_Entry = tuple[tuple[float, ...], int, int, Unit]
"""The sort key of a unit, the number of its arrival, a number that no other entry has, and the unit."""


class Turns:
    """A heap of units, and a second heap of the units whose namespace is late."""

    def __init__(self) -> None:
        self._due: list[_Entry] = []
        self._most = FEWEST
        """When the heap has more entries than this, the entries of units that are gone are dropped."""
        self._late: list[tuple[tuple[float, ...], int, int, Unit, str]] = []
        self._late_of: Counter[str] = Counter()
        self._spent: dict[str, tuple[float, float]] = {}
        """For each namespace the seconds that it owed when it last used time, and the time of that."""
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._due) + len(self._late)

    def __iter__(self) -> Iterator[Unit]:
        yield from [entry[3] for entry in self._due] + [entry[3] for entry in self._late]

    def push(self, key: tuple[float, ...], unit: Unit) -> None:
        """Add a unit that is to be tried."""
        heapq.heappush(self._due, (key, unit.arrival, next(self._number), unit))
        self._most = without_void(self._due, _is_active, self._most)

    def pop(self, now: float) -> Unit | None:
        """The unit to try next; None when there is no unit."""
        while self._due:
            if self._late and self._late[0][3].pod.priority > self._due[0][3].pod.priority:
                break
            entry = heapq.heappop(self._due)
            namespace = entry[3].pod.namespace
            if not self._late_of.get(namespace) and self._owes(namespace, now) <= ALLOWANCE:
                return entry[3]
            heapq.heappush(self._late, (*entry, namespace))
            self._late_of[namespace] += 1
        if not self._late:
            return None
        *_, unit, namespace = heapq.heappop(self._late)
        self._late_of[namespace] -= 1
        return unit

    def spent(self, namespace: str, seconds: float, now: float) -> None:
        """Deciding units of the namespace has taken this many seconds."""
        if seconds > 0:
            self._spent[namespace] = (self._owes(namespace, now) + seconds, now)
        if len(self._spent) > MOST_NAMESPACES:
            self._spent = {name: owed for name, owed in self._spent.items() if self._owes(name, now) > 0}

    def _owes(self, namespace: str, now: float) -> float:
        seconds, then = self._spent.get(namespace, (0.0, now))
        return max(0.0, seconds - SHARE * (now - then))


def _is_active(entry: _Entry) -> bool:
    return entry[3].place is Place.ACTIVE
