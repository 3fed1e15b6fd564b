"""The units that are tried now, in order; a namespace that has had much of the scheduler's time lets others pass.

Rules:
- Units are taken in the order of their sort keys, as long as no namespace has taken more time than it is allowed.
- A namespace may have ALLOWANCE seconds of deciding at once, and SHARE seconds each second after that. One that has had
  more is late: units of other namespaces pass its own, unless those have the higher priority.
- The units of one namespace stay in order among themselves, and nobody waits while there is nothing else to do.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator

from gangline.queueing.units import Unit

ALLOWANCE = 0.5
"""Seconds of deciding that a namespace may have at once."""
SHARE = 0.5
"""Seconds of deciding per second that it may have for good."""
MOST_NAMESPACES = 1024
"""Whose time is kept account of before accounts that are settled are closed."""

_Entry = tuple[tuple[float, ...], int, Unit]


class Turns:
    """A heap of units, and one of those that are late."""

    def __init__(self) -> None:
        self._due: list[_Entry] = []
        self._late: list[tuple[tuple[float, ...], int, Unit, str]] = []
        self._late_of: Counter[str] = Counter()
        self._spent: dict[str, tuple[float, float]] = {}
        """Seconds that a namespace has had and not yet paid back, and as of when."""
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._due) + len(self._late)

    def __iter__(self) -> Iterator[Unit]:
        yield from [unit for _, _, unit in self._due] + [unit for _, _, unit, _ in self._late]

    def push(self, key: tuple[float, ...], unit: Unit) -> None:
        """A unit is to be tried."""
        heapq.heappush(self._due, (key, next(self._number), unit))

    def pop(self, now: float) -> Unit | None:
        """The unit whose turn it is; None when there is none."""
        while self._due:
            if self._late and self._late[0][2].pod.priority > self._due[0][2].pod.priority:
                break
            entry = heapq.heappop(self._due)
            namespace = entry[2].pod.namespace
            if not self._late_of.get(namespace) and self._owes(namespace, now) <= ALLOWANCE:
                return entry[2]
            heapq.heappush(self._late, (*entry, namespace))
            self._late_of[namespace] += 1
        if not self._late:
            return None
        _, _, unit, namespace = heapq.heappop(self._late)
        self._late_of[namespace] -= 1
        return unit

    def spent(self, namespace: str, seconds: float, now: float) -> None:
        """The units of a namespace have had so much time."""
        if seconds > 0:
            self._spent[namespace] = (self._owes(namespace, now) + seconds, now)
        if len(self._spent) > MOST_NAMESPACES:
            self._spent = {name: owed for name, owed in self._spent.items() if self._owes(name, now) > 0}

    def _owes(self, namespace: str, now: float) -> float:
        seconds, then = self._spent.get(namespace, (0.0, now))
        return max(0.0, seconds - SHARE * (now - then))
