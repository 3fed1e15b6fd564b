"""Finds the smallest set of units whose removal makes the group fit, given the order in which units are to be removed.

The same search runs on the arithmetic of one domain (`room.Room`) and on the real columns (`trying`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gangline_plugins.gang_preemption.occupants import Removal


class Ground(Protocol):
    """A state of the cluster from which units can be removed, and to which they can be returned."""

    def remove(self, units: Sequence[Removal]) -> None:
        """Remove these units."""
        ...

    def put_back(self, units: Sequence[Removal]) -> None:
        """Return these units."""
        ...

    def fits(self) -> bool:
        """Whether the group fits in the present state."""
        ...


def find_victims(ground: Ground, order: Sequence[Removal]) -> list[Removal] | None:
    """The units to remove so that the group fits: it needs each of them removed. None if removing all units is not
    enough.

    Afterwards exactly these units are removed from the ground.
    """
    count = _shortest(ground, order)
    return None if count is None else reprieve(ground, order[:count])


def _shortest(ground: Ground, order: Sequence[Removal]) -> int | None:
    """Remove the shortest prefix of the order after which the group fits; returns its length. Doubles the prefix, then
    bisects.
    """
    low, high, step = 0, 0, 1
    while not ground.fits():
        block = order[high : high + step]
        if not block:
            return None
        ground.remove(block)
        low, high, step = high, high + len(block), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        ground.put_back(order[middle:high])
        if ground.fits():
            high = middle
        else:
            ground.remove(order[middle:high])
            low = middle
    return high


def reprieve(ground: Ground, gone: Sequence[Removal]) -> list[Removal]:
    """Return the units that need not be removed, starting with the last ones of the order; returns those that stay
    removed.
    """
    search = _Reprieve(ground)
    search.settle(list(reversed(gone)), is_hopeless=True)  # if all of them return, the group does not fit
    return search.victims


class _Reprieve:
    """Returns as many units at once as possible, by halving the list of units."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._stopped: set[str] = set()
        self.victims: list[Removal] = []

    def settle(self, units: Sequence[Removal], is_hopeless: bool) -> bool:
        """Return the units that can be returned; True if all of them were. `is_hopeless` says that not all of them
        can.
        """
        doomed = [unit for unit in units if not unit.stops and unit.gang and unit.gang in self._stopped]
        if doomed:  # their group stops, so the members that it could spare go as well
            self.victims += doomed
            units = [unit for unit in units if unit.stops or unit.gang not in self._stopped]
        if not units:
            return not doomed
        if not is_hopeless:
            self._ground.put_back(units)
            if self._ground.fits():
                return not doomed
            self._ground.remove(units)
        if len(units) == 1:
            self._give_up(units[0])
            return False
        half = len(units) // 2
        is_first_back = self.settle(units[:half], is_hopeless=False)
        self.settle(units[half:], is_hopeless=is_first_back)
        return False

    def _give_up(self, unit: Removal) -> None:
        self.victims.append(unit)
        if unit.stops and unit.gang:
            self._stopped.add(unit.gang)
