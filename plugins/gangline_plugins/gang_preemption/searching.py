"""Who has to go at least, in a given order of who goes first.

The same search runs on the arithmetic of a domain (`Room`) and on the real columns (`Trial`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gangline_plugins.gang_preemption.occupants import Removal


class Ground(Protocol):
    """Where units are taken out and put back."""

    def remove(self, units: Sequence[Removal]) -> None:
        """Take units out."""
        ...

    def put_back(self, units: Sequence[Removal]) -> None:
        """Undo that."""
        ...

    def fits(self) -> bool:
        """Whether the group fits as things are."""
        ...


def find_victims(ground: Ground, order: Sequence[Removal]) -> list[Removal] | None:
    """Units without which the group fits, and each of which it needs gone; None when all of them are not enough.

    Only the victims are out afterwards.
    """
    count = _shortest(ground, order)
    return None if count is None else reprieve(ground, order[:count])


def _shortest(ground: Ground, order: Sequence[Removal]) -> int | None:
    """Take out the shortest prefix that will do: blocks that double, then halving."""
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
    """Put back who need not go, those first that come last in the order; returns the others."""
    search = _Reprieve(ground)
    search.settle(list(reversed(gone)), is_hopeless=True)  # with all of them the group does not fit
    return search.victims


class _Reprieve:
    """Puts back as many at once as it can."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._stopped: set[str] = set()
        self.victims: list[Removal] = []

    def settle(self, units: Sequence[Removal], is_hopeless: bool) -> bool:
        """Put back what can be put back, and say whether that is all; `is_hopeless` when it is known not to be."""
        doomed = [unit for unit in units if not unit.stops and unit.gang and unit.gang in self._stopped]
        if doomed:  # members that their group could do without go with the group
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
