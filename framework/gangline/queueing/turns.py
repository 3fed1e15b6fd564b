"""The active units in order. The units of a namespace that has used much of the scheduler's time let others pass.

Rules:
- Units are taken in the order of their sort keys, as long as no namespace has used more time than it may. Units with
  equal keys are taken in the order of their arrival.
- A namespace may use ALLOWANCE seconds of deciding at once, and SHARE seconds of each second after that (a token
  bucket). A namespace that has used more is late: the units of other namespaces pass its units, unless its units have
  the higher priority.
- The units of all other profiles pass those of a profile of which too many pods are being bound.
- The units of one namespace and profile keep their order among themselves. No other unit waits while the scheduler has
  nothing else to do.
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


class _ProfileTurns:
    """The units of one profile: a heap, and a second heap of the units whose namespace is late."""

    def __init__(self) -> None:
        self.due: list[_Entry] = []
        self.most = FEWEST
        """When `due` has more entries than this, the entries of units that are gone are dropped."""
        self.late: list[_Entry] = []
        self.late_of: Counter[str] = Counter()
        """The entries in `late`, by namespace."""


class Turns:
    """The active units of all profiles."""

    def __init__(self) -> None:
        self._of: dict[str, _ProfileTurns] = {}
        """By the name of the profile."""
        self._passed: set[str] = set()
        self._spent: dict[str, tuple[float, float]] = {}
        """For each namespace the seconds that it owed when it last used time, and the time of that."""
        self._number = itertools.count()

    def __len__(self) -> int:
        """The number of entries, without those of profiles that are passed."""
        return sum(len(each.due) + len(each.late) for name, each in self._of.items() if name not in self._passed)

    def __iter__(self) -> Iterator[Unit]:
        for each in self._of.values():
            yield from [entry[3] for entry in (*each.due, *each.late)]

    def pass_by(self, profile: str, is_passed: bool) -> None:
        """Whether the units of a profile wait until they are no longer passed."""
        if is_passed:
            self._passed.add(profile)
        else:
            self._passed.discard(profile)

    def push(self, key: tuple[float, ...], unit: Unit) -> None:
        """Add a unit that is to be tried."""
        turns = self._of.get(unit.scheduler_name)
        if turns is None:
            turns = self._of[unit.scheduler_name] = _ProfileTurns()
        heapq.heappush(turns.due, (key, unit.arrival, next(self._number), unit))
        turns.most = without_void(turns.due, _is_active, turns.most)

    def pop(self, now: float) -> Unit | None:
        """The unit to try next; None when there is no unit."""
        due = late = None
        for name, turns in self._of.items():
            if name in self._passed:
                continue
            self._set_late_aside(turns, now)
            if turns.due and (due is None or turns.due[0] < due.due[0]):
                due = turns
            if turns.late and (late is None or turns.late[0] < late.late[0]):
                late = turns
        if due is not None and (late is None or late.late[0][3].pod.priority <= due.due[0][3].pod.priority):
            return heapq.heappop(due.due)[3]
        if late is None:
            return None
        unit = heapq.heappop(late.late)[3]
        late.late_of[unit.pod.namespace] -= 1
        return unit

    def _set_late_aside(self, turns: _ProfileTurns, now: float) -> None:
        """Move units whose namespace is late, until the first unit is another one or may not be passed."""
        while turns.due:
            unit = turns.due[0][3]
            if turns.late and turns.late[0][3].pod.priority > unit.pod.priority:
                return
            namespace = unit.pod.namespace
            if not turns.late_of.get(namespace) and self._owes(namespace, now) <= ALLOWANCE:
                return
            heapq.heappush(turns.late, heapq.heappop(turns.due))
            turns.late_of[namespace] += 1

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
