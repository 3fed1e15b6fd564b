"""Checks on the real columns, with all filters, whether the whole group fits after victims are gone; then undoes every
change.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from gangline import GroupAttempt, Handle, PodInfo, Transaction
from gangline_plugins.gang_preemption.occupants import Removal
from gangline_plugins.gang_preemption.searching import reprieve

MOST_TRIALS = 24
"""At most this many trial placements of the group in the search for victims in one domain."""
_MOST_STEPS = 8


class _TrialGround:
    """The real columns within a transaction, as a `Ground`. `placed` holds the nodes of the group at the last trial
    that fitted.
    """

    def __init__(self, tx: Transaction, attempt: GroupAttempt) -> None:
        self._tx = tx
        self._attempt = attempt
        self._rows: dict[str, int] = {}
        self._left = MOST_TRIALS
        self.placed: Mapping[str, int] = {}

    def remove(self, units: Sequence[Removal]) -> None:
        """Remove the pods of these units from their nodes."""
        for unit in units:
            for pod in unit.pods:
                self._rows[pod.uid] = pod.row
                self._tx.unplace(pod)

    def put_back(self, units: Sequence[Removal]) -> None:
        """Put the pods of these units back on their nodes."""
        for unit in units:
            for pod in unit.pods:
                self._tx.place(pod, self._rows[pod.uid])

    def fits(self) -> bool:
        """Whether the group finds its place; False if all trials are used up."""
        if not self._left:
            return False
        self._left -= 1
        placed = self._attempt.refit()
        if placed is None:
            return False
        self.placed = placed
        return True

    def touches(self, unit: Removal) -> bool:
        """Whether a removed unit had a pod on a node that the group takes."""
        rows = set(self.placed.values())
        return any(self._rows[pod.uid] in rows for pod in unit.pods)


class Trials:
    """Trial placements for one attempt to help a group."""

    def __init__(self, handle: Handle, attempt: GroupAttempt, leaving: Sequence[PodInfo]) -> None:
        self._handle = handle
        self._attempt = attempt
        self._leaving = leaving

    def verify(self, victims: Sequence[Removal]) -> Mapping[str, int] | None:
        """The group's nodes after the victims and all pods being deleted are gone (pod UID to row); None if it does not
        fit.
        """
        with self._handle.state.transaction() as tx:
            ground = self._ground(tx)
            ground.remove(victims)
            return ground.placed if ground.fits() else None

    def search(self, order: Sequence[Removal]) -> tuple[list[Removal], Mapping[str, int]] | None:
        """Search for victims on the real columns; `order` lists the units in the order of their eviction. Returns the
        victims and the group's nodes, or None.

        The search finds victims where a filter counts more than requests. It removes units priority by priority until
        the group fits. It then puts back the units that are not on the group's nodes, and after that every other unit
        without which the group still fits.
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

    def _ground(self, tx: Transaction) -> _TrialGround:
        for pod in self._leaving:
            tx.unplace(pod)
        return _TrialGround(tx, self._attempt)


def _widen(ground: _TrialGround, order: Sequence[Removal]) -> list[Removal] | None:
    """Remove units priority by priority until the group fits. With many priorities, several are removed per step."""
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


def _beside(ground: _TrialGround, gone: Sequence[Removal]) -> list[Removal]:
    """The removed units that are not on the group's nodes. A member that its group can spare is left out if the group
    itself has to go.
    """
    used = [unit for unit in gone if ground.touches(unit)]
    stopped = {unit.gang for unit in used if unit.stops and unit.gang}
    needed = set(used)
    return [unit for unit in gone if unit not in needed and unit.gang not in stopped]
