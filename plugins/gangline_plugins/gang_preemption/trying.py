"""Tries out on the real columns whether the whole group finds its place once victims are gone; all is taken back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from gangline import GroupAttempt, Handle, PodInfo, Transaction
from gangline_plugins.gang_preemption.occupants import Removal
from gangline_plugins.gang_preemption.searching import reprieve

MOST_TRIALS = 24
"""How often the group is placed hypothetically in the search for victims in one domain."""
_MOST_STEPS = 8


class _Columns:
    """The real columns, within a transaction; see `Ground`. `placed` is where the group went when it last fitted."""

    def __init__(self, tx: Transaction, attempt: GroupAttempt) -> None:
        self._tx = tx
        self._attempt = attempt
        self._rows: dict[str, int] = {}
        self._left = MOST_TRIALS
        self.placed: Mapping[str, int] = {}

    def remove(self, units: Sequence[Removal]) -> None:
        """Take units out."""
        for unit in units:
            for pod in unit.pods:
                self._rows[pod.uid] = pod.row
                self._tx.unplace(pod)

    def put_back(self, units: Sequence[Removal]) -> None:
        """Undo that."""
        for unit in units:
            for pod in unit.pods:
                self._tx.place(pod, self._rows[pod.uid])

    def fits(self) -> bool:
        """Whether the group finds its place; False when all trials are used up."""
        if not self._left:
            return False
        self._left -= 1
        placed = self._attempt.refit()
        if placed is None:
            return False
        self.placed = placed
        return True

    def touches(self, unit: Removal) -> bool:
        """Whether a unit that is out was on a node that the group takes."""
        rows = set(self.placed.values())
        return any(self._rows[pod.uid] in rows for pod in unit.pods)


class Trials:
    """Trials for one attempt to help a group."""

    def __init__(self, handle: Handle, attempt: GroupAttempt, leaving: Sequence[PodInfo]) -> None:
        self._handle = handle
        self._attempt = attempt
        self._leaving = leaving

    def verify(self, victims: Sequence[Removal]) -> Mapping[str, int] | None:
        """Where the group goes once the victims, and those that are being deleted, are gone: pod UID to row."""
        with self._handle.state.transaction() as tx:
            ground = self._ground(tx)
            ground.remove(victims)
            return ground.placed if ground.fits() else None

    def search(self, order: Sequence[Removal]) -> tuple[list[Removal], Mapping[str, int]] | None:
        """Victims, in an order in which they may go, and where the group goes then.

        For what the arithmetic cannot see: room is made up to one priority after the other; what is not on the nodes
        that the group takes then is put back, and of the rest whatever else may stay.
        """
        with self._handle.state.transaction() as tx:
            ground = self._ground(tx)
            gone = _widen(ground, order)
            if gone is None:
                return None
            staying = _beside(ground, gone)
            ground.put_back(staying)
            if ground.fits():
                left_out = set(staying)
                gone = [unit for unit in gone if unit not in left_out]
            else:
                ground.remove(staying)
            return reprieve(ground, gone), ground.placed

    def _ground(self, tx: Transaction) -> _Columns:
        for pod in self._leaving:
            tx.unplace(pod)
        return _Columns(tx, self._attempt)


def _widen(ground: _Columns, order: Sequence[Removal]) -> list[Removal] | None:
    """Take out all of one priority after the other until the group fits; of many priorities a few at a time."""
    ground.remove(order)
    if not ground.fits():
        return None
    ground.put_back(order)
    levels = [list(units) for _, units in itertools.groupby(order, key=lambda unit: (unit.stops, unit.priority))]
    at_once = -(-len(levels) // _MOST_STEPS)
    gone: list[Removal] = []
    for first in range(0, len(levels), at_once):
        units = [unit for level in levels[first : first + at_once] for unit in level]
        ground.remove(units)
        gone += units
        if ground.fits():
            return gone
    return None


def _beside(ground: _Columns, gone: Sequence[Removal]) -> list[Removal]:
    """Units that are not where the group goes; members that a group could do without stay only with their group."""
    used = [unit for unit in gone if ground.touches(unit)]
    stopped = {unit.gang for unit in used if unit.stops and unit.gang}
    needed = set(used)
    return [unit for unit in gone if unit not in needed and unit.gang not in stopped]
