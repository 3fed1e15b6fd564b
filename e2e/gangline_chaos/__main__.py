"""The command line: `python -m gangline_chaos run` breaks things and judges the run; `judge FILE` judges its history
again.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import click

from gangline_chaos import figures
from gangline_chaos.faults import FAULTS
from gangline_chaos.judge.history import read
from gangline_chaos.judge.judging import Judge
from gangline_chaos.judge.judging import judge as judged_from
from gangline_chaos.running import REPLICAS, Plan
from gangline_chaos.running import run as play
from gangline_chaos.virtual.playing import play as play_machine

FOLDER = Path(".chaos")
LENGTH = 100
"""The number of steps on each cluster in memory."""


@click.group()
def cli() -> None:
    """Faults of every kind on a real control plane, judged by the history of etcd."""


ELECTION = click.option(
    "--election/--no-election",
    "elect",
    default=True,
    help="Whether the schedulers elect a leader. Otherwise all bind pods, and only the rules on devices are checked.",
)


@cli.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=480.0,
    show_default=True,
    help="How long faults go on, in seconds.",
)
@click.option("--faults", "count", type=click.IntRange(min=1), help="Go on until there were so many faults instead.")
@click.option(
    "--seed", type=int, default=None, help="The seed of faults and workload. Default: a new one for each run."
)
@click.option(
    "--fault",
    "names",
    multiple=True,
    type=click.Choice(list(FAULTS)),
    help="The fault to use; may be repeated. Default: all faults.",
)
@click.option("--replicas", type=click.IntRange(min=2, max=8), default=REPLICAS, show_default=True)
@ELECTION
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=FOLDER,
    show_default=True,
    help="The folder for logs and history.",
)
def run(
    seconds: float,
    count: int | None,
    seed: int | None,
    names: tuple[str, ...],
    replicas: int,
    elect: bool,
    folder: Path,
) -> None:
    """Break things for some time, and judge the history; exit 1 if a rule was broken."""
    seed = int(time.time()) if seed is None else seed
    place = folder / f"seed-{seed}-{time.strftime('%Y%m%dT%H%M%S')}"
    place.mkdir(parents=True)
    length, at_least = (seconds, 0) if count is None else (0.0, count)
    plan = Plan(seed, length, names or tuple(FAULTS), at_least, replicas=replicas, elect=elect)
    path = asyncio.run(play(plan, place, lambda text: click.echo(text)))
    judged = judged_from(read(path), elect)
    _show(judged)
    said = [f"--seconds {seconds:g}" if count is None else f"--faults {count}", f"--seed {seed}"]
    said += [f"--fault {name}" for name in names]
    said += [f"--replicas {replicas}"] * (replicas != REPLICAS) + ["--no-election"] * (not elect)
    click.echo(f"again: {sys.executable} -m gangline_chaos run {' '.join(said)}")
    click.echo(f"judge again: {sys.executable} -m gangline_chaos judge {path}{'' if elect else ' --no-election'}")
    sys.exit(1 if judged.violations else 0)


@cli.command()
@click.option(
    "--steps", type=click.IntRange(min=1), default=50_000, show_default=True, help="The number of steps, about."
)
@click.option("--seed", type=int, default=None, help="The seed of all steps. Default: a new one for each run.")
def virtual(steps: int, seed: int | None) -> None:
    """Steps of a state machine in virtual time, on an API server in memory; fails with the shortest ones that fail.

    A seed repeats a run with the same PYTHONHASHSEED.
    """
    seed = int(time.time()) if seed is None else seed
    click.echo(f"seed {seed}")
    began, done = time.process_time(), play_machine(seed, steps, LENGTH)
    took = time.process_time() - began
    said = f"{done.steps} steps with {done.faults} faults in {took:.0f} s of CPU, {done.steps / took:.0f} steps/s"
    click.echo(f"{said}; no rule was broken")


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@ELECTION
def judge(file: Path, elect: bool) -> None:
    """Judge the history of an earlier run again; exit 1 if a rule was broken."""
    judged = judged_from(read(file), elect)
    _show(judged)
    sys.exit(1 if judged.violations else 0)


def _show(judged: Judge) -> None:
    for line in figures.lines(judged):
        click.echo(line)


if __name__ == "__main__":
    cli(prog_name="python -m gangline_chaos")
