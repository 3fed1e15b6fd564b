"""Writes the outcomes: a table for people, JSON for programs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from vs_kube import figures
from vs_kube.figures import KUBE, OURS, Metric, Run, Spread


@dataclass(frozen=True, slots=True)
class Outcome:
    """All runs of one workload."""

    workload: str
    says: str
    metrics: tuple[Metric, ...]
    nodes: int
    pods: int
    """The number of pods; 0 if pods come at a rate."""
    runs: tuple[Run, ...]

    def title(self) -> str:
        """The workload and its size, in a line."""
        number = sum(run.scheduler == OURS for run in self.runs)
        pods = f", {self.pods} pods" if self.pods else ""
        return f"{self.workload}: {self.nodes} nodes{pods}, {number} run(s) each: {self.says}"

    def of(self, scheduler: str, metric: Metric) -> Spread:
        """The figures of one scheduler."""
        return figures.spread(figures.of(self.runs, scheduler, metric.title))

    def ratio(self, metric: Metric) -> Spread | None:
        """Gangline's figures divided by kube-scheduler's; None if one of those is 0."""
        return figures.ratio(self.runs, metric.title)


def table(outcome: Outcome) -> Table:
    """Medians, in brackets the least and the greatest figure."""
    drawn = Table("", KUBE, OURS, "ratio", box=None)
    for metric in outcome.metrics:
        cells = [spelt(outcome.of(name, metric), metric.form) for name in (KUBE, OURS)]
        drawn.add_row(metric.title, *cells, spelt(outcome.ratio(metric), "{:.3f}"))
    return drawn


def spelt(spread: Spread | None, form: str) -> str:
    """A spread in words: `12.5 (11.9-13.4)`; one figure alone if there is but one; `-` for None."""
    if spread is None:
        return "-"
    middle = form.format(spread.median)
    if spread.least == spread.greatest:
        return middle
    return f"{middle} ({form.format(spread.least)}-{form.format(spread.greatest)})"


def python() -> str:
    """The Python that runs Gangline: builds of one version differ by a fifth in speed."""
    return f"{sys.version} in {sys.base_prefix}"


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything that was measured and on which machine, to be written as JSON."""
    return {
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": python()},
        "workloads": [_workload(outcome) for outcome in outcomes],
    }


def _workload(outcome: Outcome) -> dict[str, Any]:
    ratios = {metric: outcome.ratio(metric) for metric in outcome.metrics}
    return {
        "workload": outcome.workload,
        "nodes": outcome.nodes,
        "pods": outcome.pods,
        "quiet": not figures.unquiet(outcome.runs),
        "runs": [
            {"scheduler": run.scheduler, "values": dict(run.values), "coresUsedByOthers": round(run.others, 3)}
            for run in outcome.runs
        ],
        "metrics": [
            {
                "title": metric.title,
                "lessIsBetter": metric.less_is_better,
                **{name: asdict(outcome.of(name, metric)) for name in (KUBE, OURS)},
                "ratio": asdict(ratio) if ratio is not None else None,
            }
            for metric, ratio in ratios.items()
        ],
    }
