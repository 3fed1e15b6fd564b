"""Which candidate costs least: kube-scheduler's order of candidates."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gangline import PodInfo
from gangline_plugins.preemption.precedence import started

_MAKES_POSITIVE = 2**31
"""Added to each priority, so that fewer victims are better than many even if priorities are negative."""


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
    least = min(map(_cost, candidates))
    return max((c for c in candidates if _cost(c) == least), key=_start_of_most_important)


def _cost(candidate: Candidate) -> tuple[int, int, int, int]:
    victims = candidate.victims
    total = sum(pod.priority + _MAKES_POSITIVE for pod in victims)
    return candidate.violations, victims[0].priority, total, len(victims)


def _start_of_most_important(candidate: Candidate) -> str:
    highest = candidate.victims[0].priority
    return min(started(pod) for pod in candidate.victims if pod.priority == highest)
