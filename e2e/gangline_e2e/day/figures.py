"""The figures of a day."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from rich.console import Console
from rich.table import Table

from gangline_e2e.day.judge import Judge, Sample
from gangline_e2e.day.replicas import Replicas

BEST_S = 10.0
"""Seconds over which the best rate is taken."""


def rate(moments: Sequence[float], window: float) -> float:
    """The highest number of moments within a window of so many seconds, per second; the moments are in order."""
    most = max((number - bisect_left(moments, each - window) + 1 for number, each in enumerate(moments)), default=0)
    return most / window


def utilisation(samples: Sequence[Sample]) -> float:
    """The fraction of GPUs in use while pods waited, as the mean over that time; 0 if no pod ever waited."""
    spans = [(after.now - each.now, each) for each, after in pairwise(samples) if each.waiting]
    seconds = sum(span for span, _ in spans)
    return sum(span * each.held / each.present for span, each in spans if each.present) / seconds if seconds else 0.0


def show(judge: Judge, replicas: Replicas, held_s: float, cpu_s: Mapping[str, float]) -> None:
    """Print the figures of a day; ``cpu_s`` is CPU time by program."""
    table = Table("", "", box=None, show_header=False)
    moments = judge.bindings
    spent = moments[-1] - moments[0] if len(moments) > 1 else 0.0
    table.add_row("pods that got a node", f"{len(moments)} in {spent:.0f} s")
    if spent:
        table.add_row("pods/s", f"{len(moments) / spent:.0f}, at best {rate(moments, BEST_S):.0f} over {BEST_S:g} s")
    for kind, seconds in sorted(judge.waits.items()):
        p50, p99, most = np.percentile(seconds, [50, 99, 100])
        table.add_row(f"waiting: {kind}", f"p50 {p50:.2f} s, p99 {p99:.1f} s, longest {most:.1f} s ({len(seconds)})")
    if judge.phases:
        table.add_row(
            "gangs, first pod to last",
            f"p50 {np.median([*judge.phases.values()]):.2f} s, "
            f"longest {max(judge.phases.values()):.2f} s ({len(judge.phases)})",
        )
    if longest := judge.waiting.longest:
        name = max(longest, key=longest.__getitem__)
        table.add_row("waited though it fitted", f"{longest[name]:.1f} s at most ({name})")
    table.add_row("GPUs in use while pods wait", f"{100 * utilisation(judge.samples):.1f} %")
    table.add_row(
        "GPUs in use at most", f"{100 * max(each.held / max(each.present, 1) for each in judge.samples):.1f} %"
    )
    table.add_row("pods that wait, at most", f"{max(each.waiting for each in judge.samples)}")
    table.add_row("memory of a scheduler", f"{replicas.peak_rss / 2**20:.0f} MiB at most")
    table.add_row("without a leader", ", ".join(f"{each:.1f} s" for each in replicas.without) or "never")
    table.add_row("the day was held for", f"{held_s:.0f} s, while pods that fitted waited")
    used = {**cpu_s, "schedulers": sum(replicas.cpu_s.values())}
    table.add_row("CPU seconds", ", ".join(f"{name} {seconds:.0f}" for name, seconds in used.items()))
    table.add_row("folded", ", ".join(f"{count} {what}" for what, count in judge.counts.items()))
    Console(width=140).print(table)
