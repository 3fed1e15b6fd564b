"""Which candidate costs least: kube-scheduler's order of candidates."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gangline import PodInfo
from gangline_plugins.preemption.precedence import started

_MAKES_POSITIVE = 2**31
"""Added to each priority, so that fewer victims are better than many even if priorities are negative."""
Cost = tuple[int, int, int, int]
"""Budget violations, the priority of the most important victim, the sum of priorities, the number of victims."""


class Candidate(msgspec.Struct, frozen=True):
    """A node on which the pod fits after the victims are gone. The most important victim comes first."""

    row: int
    node: str
    victims: tuple[PodInfo, ...]
    violations: int
    """Victims whose eviction violates a PodDisruptionBudget."""


def choose(candidates: Sequence[Candidate]) -> Candidate | None:
    """The candidate to take; None if there is none.

    The order: fewest budget violations; then the lowest priority of the most important victim; then the smallest sum of
    priorities; then the fewest victims; then the latest start among the most important victims; then the first in the
    list.
    """
    if not candidates:
        return None
    costs = [cost_of(each.victims, each.violations) for each in candidates]
    least = min(costs)
    cheapest = (each for each, cost in zip(candidates, costs, strict=True) if cost == least)
    return max(cheapest, key=lambda each: start_of_most_important(each.victims))


def cost_of(victims: Sequence[PodInfo], violations: int) -> Cost:
    """What evicting these victims costs, apart from the start times. The most important victim comes first."""
    return violations, victims[0].priority, sum([pod.priority + _MAKES_POSITIVE for pod in victims]), len(victims)


def start_of_most_important(victims: Sequence[PodInfo]) -> str:
    """The start time by which equal costs are compared: the first one among the most important victims."""
    highest = victims[0].priority
    return min([started(pod) for pod in victims if pod.priority == highest])
