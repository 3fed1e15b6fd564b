"""The order in which pods are considered for eviction, and the cost of evicting them.

Members that their group can spare come first, then lower priorities before higher ones. Among units of equal rank the
smallest one that makes enough room by itself comes first; if there is none, the largest, so that few units are evicted.
Units whose eviction would violate a PodDisruptionBudget come last.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline_plugins.gang_preemption.occupants import Occupants, Removal
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.precedence import importance, started

_LOWEST = -(2**31)
_NEARLY = 1e-6


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """The cost of a set of victims, compared field by field: the smallest is best. Of equal costs, the plan whose
    victims started last is taken.
    """

    violations: int
    """Victims whose eviction violates a PodDisruptionBudget."""
    priority: int
    """The highest priority of a group or single pod that is stopped."""
    stopped: int
    """Groups and single pods that are stopped."""
    pods: int


def cost_of(victims: Sequence[Removal], budgets: Budgets) -> Cost:
    """The cost of evicting these victims."""
    pods = sorted((pod for unit in victims for pod in unit.pods), key=importance)
    stopped = [unit for unit in victims if unit.stops]
    priority = max((unit.priority for unit in stopped), default=_LOWEST)
    return Cost(len(budgets.split(pods)[0]), priority, len(stopped), len(pods))


def first_start(victims: Sequence[Removal]) -> str:
    """The start time of the victim that started first, as a text that sorts."""
    return min((started(pod) for unit in victims for pod in unit.pods), default="")


class _Weighed(msgspec.Struct, frozen=True, eq=False):
    """A unit with its gain: how many members of the group fit in the room that the unit gives back."""

    unit: Removal
    gain: float
    tie: tuple[int, int, int]
    """Decides between equal gains: the unit with fewest pods, then the node with fewest pods. Nodes are emptied one by
    one.
    """
    breaks: bool = False

    @property
    def level(self) -> tuple[bool, int, int]:
        return self.breaks, self.unit.stops, self.unit.priority


def in_order(
    units: Sequence[Removal], occupants: Occupants, gains: NDArray[np.float64], missing: int, budgets: Budgets
) -> list[Removal]:
    """The units in the order of their eviction. `gains` holds one value per pod: how many members fit in its room."""
    if not units:
        return []
    crowd = np.bincount(occupants.rows[np.concatenate([unit.slots for unit in units])]).astype(np.int64)
    crowds, rows, of_pods = crowd.tolist(), occupants.rows.tolist(), gains.tolist()
    weighed = [_weigh(unit, rows, of_pods, crowds) for unit in units]
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


def _weigh(unit: Removal, rows: Sequence[int], gains: Sequence[float], crowd: Sequence[int]) -> _Weighed:
    """`rows` and `gains` hold one value per pod, and `crowd` the number of pods that may go on each row."""
    slots = unit.slots.tolist()
    gain = round(gains[slots[0]] if len(slots) == 1 else float(np.add.reduce([gains[slot] for slot in slots])), 6)
    row = rows[slots[0]]
    tie = (len(unit.pods), crowd[row], row) if gain < 1 else (len(unit.pods), 0, 0)
    return _Weighed(unit, gain, tie)


def _with_budgets(weighed: Sequence[_Weighed], budgets: Budgets) -> list[_Weighed]:
    """The same units, each marked if its eviction violates a budget after all earlier units have gone. A group is
    marked if one of its members violates a budget.
    """
    breaking = {pod.uid for pod in budgets.split([pod for each in weighed for pod in each.unit.pods])[0]}
    broken = {each.unit: any(pod.uid in breaking for pod in each.unit.pods) for each in weighed}
    gangs = {unit.gang for unit, breaks in broken.items() if breaks and unit.gang}
    return [
        msgspec.structs.replace(each, breaks=broken[each.unit] or (each.unit.stops and each.unit.gang in gangs))
        for each in weighed
    ]


def _few_first(equals: list[_Weighed], left: float) -> Iterator[_Weighed]:
    """The units of one level in order: while room is missing, the smallest unit that is enough, else the largest; then
    the rest.
    """
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
