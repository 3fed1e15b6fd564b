"""Evaluates the figures of several runs: medians, spreads, ratios and percentiles; pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

QUIET_CORES = 0.1
"""Cores that other processes may use while a machine still counts as quiet."""
KUBE, OURS = "kube-scheduler", "Gangline"
"""The two schedulers that are compared, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of each run; `form` is how it is printed."""

    title: str
    form: str = "{:.3f}"
    less_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """One scheduler once on a workload."""

    scheduler: str
    values: Mapping[str, float]
    """The figures, by the titles of their metrics."""
    others: float
    """Cores that other processes of the machine used meanwhile."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several figures, the least and the greatest of them."""

    median: float
    least: float
    greatest: float


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one figure."""
    return Spread(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The least of the values that so large a share of them does not exceed; the nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def of(runs: Sequence[Run], scheduler: str, title: str) -> list[float]:
    """The figures of one scheduler, in the order of its runs."""
    return [run.values[title] for run in runs if run.scheduler == scheduler]


def ratio(runs: Sequence[Run], title: str) -> Spread | None:
    """Gangline's figure divided by kube-scheduler's in the run before it, over all pairs; None if one of those is 0.

    The two runs of a pair follow each other, so whatever slows a machine for a while concerns both.
    """
    theirs, ours = of(runs, KUBE, title), of(runs, OURS, title)
    if not all(theirs):
        return None
    return spread([mine / other for other, mine in zip(theirs, ours, strict=True)])


def unquiet(runs: Sequence[Run]) -> list[Run]:
    """The runs during which other processes used more than a little of the machine."""
    return [run for run in runs if run.others > QUIET_CORES]


def verdict(runs: Sequence[Run]) -> str:
    """Whether the machine was quiet, in a sentence."""
    loud = unquiet(runs)
    most = max(run.others for run in runs)
    if not loud:
        return f"The machine was quiet: other processes used {most:.2f} cores at most."
    return (
        f"THE MACHINE WAS NOT QUIET in {len(loud)} of {len(runs)} runs: other processes used up to {most:.2f} cores."
        " The ratios are worth little, and the figures nothing."
    )
