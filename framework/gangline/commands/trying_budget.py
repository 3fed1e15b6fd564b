"""How long processes that try changes may run: a share of the time, in total and for each viewer.

Rules
- A process is paid for after its end, so a budget may be overdrawn by one process. Each start costs `LEAST` seconds at
  least, because a process that ends at once has cost something too.
- Who has not asked for a while may ask several times in a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gangline.errors import AskLater

LEAST = 1.0
"""Seconds that each start costs, at least."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Seconds of processes that may be spent."""

    at_once: float
    """After a pause that was long enough."""
    share: float
    """The part of the time, in the long run."""


TOTAL, OF_ONE = Allowance(120.0, 1 / 4), Allowance(60.0, 1 / 8)
"""For all viewers together, and for one viewer."""


class TryingBudgets:
    """What is left for all viewers, and for each viewer by name."""

    def __init__(self, monotonic: Callable[[], float], total: Allowance = TOTAL, of_one: Allowance = OF_ONE) -> None:
        self._monotonic = monotonic
        self._of_one = of_one
        self._total = _SecondsLeft(total, monotonic())
        self._by_viewer: dict[str, _SecondsLeft] = {}

    def check(self, viewer: str) -> None:
        """Raises AskLater if a viewer has to wait before a process may be started for the viewer."""
        now, mine = self._monotonic(), self._by_viewer.get(viewer)
        if mine is not None and (pause := mine.pause(now)):
            raise AskLater("you have asked much in a short time", pause)
        if pause := self._total.pause(now):
            raise AskLater("all viewers together have asked much in a short time", pause)

    def pay(self, viewer: str, seconds: float) -> None:
        """A process for a viewer has run so long."""
        now, price = self._monotonic(), max(LEAST, seconds)
        self._by_viewer = {name: each for name, each in self._by_viewer.items() if not each.is_full(now)}
        mine = self._by_viewer.setdefault(viewer, _SecondsLeft(self._of_one, now))
        for each in (mine, self._total):
            each.pay(price, now)

    def __len__(self) -> int:
        """How many viewers have a budget that is not full."""
        return len(self._by_viewer)


class _SecondsLeft:
    """Seconds that are left; they come back with time."""

    def __init__(self, allowance: Allowance, now: float) -> None:
        self._allowance = allowance
        self._left, self._at = allowance.at_once, now

    def is_full(self, now: float) -> bool:
        return self._now(now) >= self._allowance.at_once

    def pause(self, now: float) -> int:
        """Whole seconds until something is left; 0 if something is left."""
        left = self._now(now)
        return 0 if left > 0 else math.floor(-left / self._allowance.share) + 1

    def pay(self, seconds: float, now: float) -> None:
        self._left, self._at = self._now(now) - seconds, now

    def _now(self, now: float) -> float:
        return min(self._allowance.at_once, self._left + (now - self._at) * self._allowance.share)
