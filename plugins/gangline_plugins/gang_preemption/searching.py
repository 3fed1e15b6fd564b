"""Who has to go at least, in a given order of who goes first.

The same search runs on the arithmetic of a domain (`Room`) and on the real columns (`Trial`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from gangline_plugins.gang_preemption.occupants import SPARE, WHOLE, Unit


class Ground(Protocol):
    """Where units are taken out and put back."""

    def remove(self, units: Sequence[Unit]) -> None:
        """Take units out."""
        ...

    def put_back(self, units: Sequence[Unit]) -> None:
        """Undo that."""
        ...

    def fits(self) -> bool:
        """Whether the group fits as things are."""
        ...


def find_victims(ground: Ground, order: Sequence[Unit]) -> list[Unit] | None:
    """Units without which the group fits, and each of which it needs gone; None when all of them are not enough.

    Only the victims are out afterwards.
    """
    count = _shortest(ground, order)
    return None if count is None else reprieve(ground, order[:count])


def _shortest(ground: Ground, order: Sequence[Unit]) -> int | None:
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


def reprieve(ground: Ground, gone: Sequence[Unit]) -> list[Unit]:
    """Put back who need not go, those first that come last in the order; returns the others."""
    victims: list[Unit] = []
    stopped: set[str] = set()
    left = [list(reversed(gone))]
    while left:
        units = left.pop()
        if stopped:  # a member that its group could do without goes with the group
            victims += [unit for unit in units if _is_doomed(unit, stopped)]
            units = [unit for unit in units if not _is_doomed(unit, stopped)]
        if not units:
            continue
        ground.put_back(units)
        if ground.fits():
            continue
        ground.remove(units)
        if len(units) > 1:
            half = len(units) // 2
            left += [units[half:], units[:half]]
            continue
        victims += units
        if units[0].kind == WHOLE:
            stopped.add(units[0].gang)
    return victims


def _is_doomed(unit: Unit, stopped: Set[str]) -> bool:
    return unit.kind == SPARE and bool(unit.gang) and unit.gang in stopped
