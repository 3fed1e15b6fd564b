"""A replay of a large trace: how long `gangline replay` takes for 100,000 pods on 1,200 nodes of a full cluster.

    python benchmarks/replay.py [TRACE...] [--pods 100000] [--nodes 1200] [--profile gpu-scheduler] [--load 1.0]

The trace is made up from a seed, in Gangline's own format: parts of GPUs, whole GPUs, whole nodes, and gangs of up to
16 nodes, some with a high priority. More jobs come by day than by night, so the cluster is full and a queue grows by
day, and the queue is worked off by night. The time counts reading the file, playing it and computing the figures.
"""

from __future__ import annotations

import csv
import hashlib
import math
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gangline.commands.profiles import choose
from gangline.replay import reading
from gangline.replay.figures import Figures, figures
from gangline.replay.playing import Player

GPUS = 8
"""GPUs of each node."""
PRIORITIES = ((0, 85), (10, 10), (100, 5))
"""Priorities with their shares of the jobs, in percent."""
_DAY = 86_400.0
_SWING = 0.4
"""By how much more or fewer jobs come at the busiest and the quietest time of a day than on the mean."""


@dataclass(frozen=True, slots=True)
class JobKind:
    """Jobs of one shape. CPUs and memory are those that belong to the GPUs of each pod."""

    share: int
    """In percent of all jobs."""
    pods: int
    gpus: int
    fraction: str = ""
    hours: float = 1.0
    """The median duration."""

    @property
    def demand(self) -> float:
        """GPUs of all pods."""
        return self.pods * self.gpus * float(self.fraction or 1)


KINDS = (
    JobKind(10, 1, 1, "0.25", 0.5),
    JobKind(12, 1, 1, "0.5", 0.5),
    JobKind(30, 1, 1),
    JobKind(10, 1, 2),
    JobKind(10, 1, 4, hours=2),
    JobKind(12, 1, 8, hours=2),
    JobKind(6, 8, 1),
    JobKind(5, 2, 8, hours=3),
    JobKind(3, 4, 8, hours=3),
    JobKind(1, 8, 8, hours=4),
    JobKind(1, 16, 8, hours=4),
)
_SPREAD = 1.0
"""The standard deviation of the logarithm of durations."""


def made_up(pods: int, nodes: int, load: float, seed: int) -> Iterator[tuple[str, ...]]:
    """The lines of a trace of at least so many pods that ask for `load` times the GPUs of the cluster, on the mean."""
    chance = random.Random(seed)
    jobs, left = [], pods
    while left > 0:
        kind = chance.choices(KINDS, [kind.share for kind in KINDS])[0]
        jobs.append((kind, round(3600 * kind.hours * math.exp(chance.gauss(0, _SPREAD)), 1)))
        left -= kind.pods
    span = sum(kind.demand * seconds for kind, seconds in jobs) / (load * nodes * GPUS)
    yield "arrival", "duration", "pods", "gpus", "fraction", "cpu", "memory", "priority"
    for arrival, (kind, seconds) in zip(_arrivals(len(jobs), span, chance), jobs, strict=True):
        priority = chance.choices(*zip(*PRIORITIES, strict=True))[0]
        cpu, memory = 4 * kind.gpus, 32 * kind.gpus
        cells = (arrival, seconds, kind.pods, kind.gpus, kind.fraction, cpu, f"{memory}Gi", priority)
        yield tuple(map(str, cells))


def _arrivals(count: int, span: float, chance: random.Random) -> list[float]:
    """The times at which jobs come, in order; more of them by day than by night."""
    found: list[float] = []
    while len(found) < count:
        moment = chance.uniform(0, span)
        if chance.uniform(0, 1 + _SWING) < 1 + _SWING * math.sin(2 * math.pi * moment / _DAY):
            found.append(round(moment, 1))
    return sorted(found)


def write(path: Path, lines: Iterator[tuple[str, ...]]) -> None:
    """Write the trace."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


def measure(traces: Sequence[Path], nodes: int, profile: str) -> tuple[Figures, float, float]:
    """Play the trace; returns its figures, and the seconds of CPU and of wall-clock time that it took."""
    began, cpu = time.perf_counter(), time.process_time()
    trace = reading.read(traces)
    trace.nodes = trace.nodes or reading.counted(f"{nodes}x{GPUS}") or []
    config = choose([], profile)
    found = figures(profile, Player(trace, config, config.profiles[0], seed=0).play(), [])
    return found, time.process_time() - cpu, time.perf_counter() - began


def digest(found: Figures) -> str:
    """A text that is equal for replays with equal figures."""
    figures_of = {**msgspec.to_builtins(found), "cpu_seconds": 0}
    return hashlib.sha256(msgspec.json.encode(figures_of, order="sorted")).hexdigest()[:12]


@click.command()
@click.argument("traces", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--pods", default=100_000, show_default=True)
@click.option("--nodes", default=1_200, show_default=True)
@click.option("--profile", "profiles", multiple=True, default=("gpu-scheduler",), show_default=True)
@click.option("--load", default=1.0, show_default=True, help="The GPUs that jobs ask for, as a multiple of all GPUs.")
@click.option("--seed", default=0, show_default=True)
def main(traces: Sequence[Path], pods: int, nodes: int, profiles: Sequence[str], load: float, seed: int) -> None:
    """Measure and print; with TRACES, play these files instead of a made-up trace."""
    columns = ("profile", "pods", "evicted", "longest queue", "decisions", "CPU s", "wall s", "pods/CPU s", "figures")
    table = Table(*columns, title=f"Replay on {nodes} nodes" if not traces else "Replay", box=None)
    with tempfile.TemporaryDirectory() as folder:
        if not traces:
            traces = (Path(folder) / "trace.csv",)
            write(traces[0], made_up(pods, nodes, load, seed))
        for profile in profiles:
            found, cpu, wall = measure(traces, nodes, profile)
            queue = max(sample.waiting for sample in found.samples)
            numbers = (found.pods, found.evictions, queue, found.decisions)
            table.add_row(
                profile,
                *(f"{number:,}" for number in numbers),
                f"{cpu:.1f}",
                f"{wall:.1f}",
                f"{found.pods / cpu:,.0f}",
                digest(found),
            )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
