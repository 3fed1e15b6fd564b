"""Who goes first, and what it costs when somebody goes.

Members that a group can spare go first; then lower priorities before higher ones. Among equals the smallest unit goes
that is enough on its own, else the largest, so that few go. What breaks a disruption budget goes last of all.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gangline_plugins.gang_preemption.occupants import Occupants, Removal
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.precedence import importance, started

_LOWEST = -(2**31)
_NEARLY = 1e-6


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What victims cost; the smallest is the best, and among equals the one whose victims started last."""

    violations: int
    """Victims that a disruption budget would have kept."""
    priority: int
    """The highest priority of a group or pod that is stopped."""
    stopped: int
    """Groups, and pods on their own, that are stopped."""
    pods: int


def cost_of(victims: Sequence[Removal], budgets: Budgets) -> Cost:
    """What it costs when these go."""
    pods = sorted((pod for unit in victims for pod in unit.pods), key=importance)
    stopped = [unit for unit in victims if unit.stops]
    priority = max((unit.priority for unit in stopped), default=_LOWEST)
    return Cost(len(budgets.split(pods)[0]), priority, len(stopped), len(pods))


def first_start(victims: Sequence[Removal]) -> str:
    """When the first of them was started, as a text that sorts."""
    return min((started(pod) for unit in victims for pod in unit.pods), default="")


@dataclass(frozen=True, slots=True, eq=False)
class _Weighed:
    """A unit with what it gives, in members of the group."""

    unit: Removal
    gain: float
    tie: tuple[int, int, int]
    """Fewest pods; then nodes with few pods, one after the other, so that nodes become free as a whole."""
    breaks: bool = False

    @property
    def level(self) -> tuple[bool, int, int]:
        return self.breaks, self.unit.stops, self.unit.priority


def in_order(
    units: Sequence[Removal], occupants: Occupants, gains: NDArray[np.float64], missing: int, budgets: Budgets
) -> list[Removal]:
    """The units in the order in which they go; `gains` says what each pod gives, in members of the group."""
    if not units:
        return []
    crowd = np.bincount(occupants.rows[np.concatenate([unit.slots for unit in units])]).astype(np.int64)
    weighed = [_weigh(unit, occupants, gains, crowd) for unit in units]
    weighed.sort(key=lambda each: started(each.unit.pods[0]), reverse=True)
    weighed.sort(key=lambda each: (*each.level, -each.gain, each.tie))
    if budgets.any:
        weighed = sorted(_with_budgets(weighed, budgets), key=lambda each: each.level)
    left = float(missing)
    ordered: list[Removal] = []
    for _, equals in itertools.groupby(weighed, key=lambda each: each.level):
        for each in _few_first(list(equals), left):
            left -= each.gain
            ordered.append(each.unit)
    return ordered


def _weigh(unit: Removal, occupants: Occupants, gains: NDArray[np.float64], crowd: NDArray[np.int64]) -> _Weighed:
    gain = round(float(gains[unit.slots].sum()), 6)
    row = int(occupants.rows[unit.slots[0]])
    tie = (len(unit.pods), int(crowd[row]), row) if gain < 1 else (len(unit.pods), 0, 0)
    return _Weighed(unit, gain, tie)


def _with_budgets(weighed: Sequence[_Weighed], budgets: Budgets) -> list[_Weighed]:
    """The same, with whether going breaks a budget when all before have gone; a group breaks one with its members."""
    breaking = {pod.uid for pod in budgets.split([pod for each in weighed for pod in each.unit.pods])[0]}
    broken = {each.unit: any(pod.uid in breaking for pod in each.unit.pods) for each in weighed}
    gangs = {unit.gang for unit, breaks in broken.items() if breaks and unit.gang}
    return [
        replace(each, breaks=broken[each.unit] or (each.unit.stops and each.unit.gang in gangs)) for each in weighed
    ]


def _few_first(equals: list[_Weighed], left: float) -> Iterator[_Weighed]:
    """Those of one level: the smallest that is enough, else the largest, until there is enough; then the others."""
    rising = sorted(equals, key=lambda each: each.gain)
    gains = [each.gain for each in rising]
    while rising and left > _NEARLY:
        at = bisect_left(gains, left - _NEARLY)
        if at == len(rising):
            at = bisect_left(gains, gains[-1])
        gains.pop(at)
        each = rising.pop(at)
        left -= each.gain
        yield each
        if each.gain <= 0:
            break
    yield from sorted(rising, key=lambda each: -each.gain)
