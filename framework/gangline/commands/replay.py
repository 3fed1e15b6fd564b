"""`gangline replay`: plays the trace of a cluster under one or several profiles, in virtual time."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gangline import config
from gangline.commands import options
from gangline.commands.output import put, table, told
from gangline.commands.profiles import installed, text_of
from gangline.config import Profile, SchedulerConfiguration
from gangline.durations import parse_duration
from gangline.errors import GanglineError
from gangline.process.whole_files import STANDARD_OUTPUT, write_to
from gangline.replay import reading
from gangline.replay.figures import Figures, Replayed, figures
from gangline.replay.playing import Player
from gangline.replay.report import MOST_PROFILES, duration, report
from gangline.replay.trace import Trace

if TYPE_CHECKING:
    from rich.console import Console

Chosen = tuple[str, SchedulerConfiguration, Profile]
_DEFAULT = "gpu-scheduler"
_SLOWEST, _FASTEST = 1e-6, 1e6
_EVERY = 50
"""Jobs between two looks at the progress bar."""


@click.command()
@click.argument(
    "traces",
    nargs=-1,
    required=True,
    type=options.InputFile(exists=True, dir_okay=False, path_type=Path),
    metavar="TRACE...",
)
@click.option(
    "--nodes",
    metavar="NODESxGPUS",
    default="",
    help="The cluster, for a trace without nodes: 300x8 is 300 nodes with 8 GPUs each.",
)
@click.option(
    "--profile",
    "names",
    multiple=True,
    metavar="NAME",
    help=f"An installed profile; may be given several times. Default: {_DEFAULT}.",
)
@options.CONFIG
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    help="Let jobs arrive so many times faster; their pods run as long as in the trace.",
)
@click.option("--duration", "length", default="", help="End after this virtual time, for example 12h.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random choice between equal nodes.")
@click.option(
    "--report",
    "page",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    help="Also write an HTML file; `-`: to standard output, and the table to standard error.",
)
@options.OUTPUT
def replay(
    traces: Sequence[Path],
    nodes: str,
    names: Sequence[str],
    files: Sequence[str],
    speed: float,
    length: str,
    seed: int,
    page: str | None,
    output: str,
) -> None:
    """Play the trace of a cluster under one or several profiles, in virtual time.

    A TRACE is a list of pods or nodes of Alibaba's openb trace, the jobs of Microsoft's Philly cluster, or a file of
    Gangline's own format; several files are one trace. Each profile plays the same trace on an empty cluster, with the
    scheduler's own decisions, queue and preemption. The table, the data and the report set the profiles side by side.
    """
    if not (math.isfinite(speed) and _SLOWEST <= speed <= _FASTEST):
        raise click.UsageError(f"--speed {speed:g} is not between {_SLOWEST:g} and {_FASTEST:g}")
    if page is not None:
        _check_folder(page)
    until = _seconds(length) if length else None
    trace = _trace(traces, nodes, speed)
    chosen = _chosen(names, files)
    found = [_played(trace, one, until, seed) for one in chosen]
    gpus = sum(node.gpus for node in trace.nodes)
    replayed = Replayed([path.name for path in traces], len(trace.nodes), gpus, len(trace.jobs), trace.pods, found)
    if page is not None:
        _write(page, report(replayed))
    for note in dict.fromkeys(note for each in found for note in each.notes):
        click.echo(f"note: {note}", err=True)
    text = told(replayed, output, [each.profile for each in found], lambda screen: _show(found, screen))
    click.echo(text, nl=False, err=page == STANDARD_OUTPUT)


def _check_folder(name: str) -> None:
    """Raises UsageError if no file can be made there: a replay may take long, and its report would be lost."""
    page = Path(name)
    if name != STANDARD_OUTPUT and not page.exists() and not os.access(page.parent, os.W_OK):
        why = "may not be written" if page.parent.is_dir() else "is no folder"
        raise click.UsageError(f"--report {page}: {page.parent} {why}")


def _write(page: str, text: str) -> None:
    """Raises GanglineError."""
    try:
        write_to(page, text.encode())
    except BrokenPipeError:  # nobody reads it to its end, which is no failure to tell of
        raise
    except OSError as error:
        raise GanglineError(f"--report {page}: cannot be written: {error.strerror or error}") from None


def _seconds(text: str) -> float:
    try:
        found = float(parse_duration(text))
    except (ValueError, GanglineError):
        raise click.UsageError(f"--duration {text!r} is no duration: something like 90s or 1h30m is expected") from None
    if not found:
        raise click.UsageError(f"--duration {text!r} leaves no time for a pod: something like 90s or 1h30m is expected")
    return found


def _trace(traces: Sequence[Path], nodes: str, speed: float) -> Trace:
    trace = reading.read(traces)
    if nodes:
        made = reading.counted(nodes)
        if made is None:
            listed = "; a list of nodes is a TRACE of its own" if Path(nodes).exists() else ""
            raise click.UsageError(f"--nodes {nodes!r} is no NODESxGPUS: something like 300x8 is expected{listed}")
        if trace.nodes:
            raise click.UsageError("--nodes is for a trace without nodes: leave it out, or the list of nodes")
        trace.nodes.extend(made)
    if not trace.nodes:
        raise click.UsageError("the trace names no nodes: add a list of nodes to it, or say --nodes 300x8")
    return reading.faster(trace, speed) if speed != 1.0 else trace


def _chosen(names: Sequence[str], files: Sequence[str]) -> list[Chosen]:
    """The profiles to replay, each with its configuration. Raises ConfigError and UsageError."""
    texts = installed()
    configurations = [config.load(text_of(name, texts), name) for name in dict.fromkeys(names)]
    configurations += [config.load_files([Path(file)]) for file in files]
    if not configurations:
        configurations = [config.load(texts[_DEFAULT], _DEFAULT)]
    found = [(profile.scheduler_name, each, profile) for each in configurations for profile in each.profiles]
    if len(found) > MOST_PROFILES:
        raise click.UsageError(f"{len(found)} profiles are too many: at most {MOST_PROFILES} are compared")
    shown = [name for name, _, _ in found]
    if twice := next((name for name in shown if shown.count(name) > 1), ""):
        raise click.UsageError(f"there are two profiles {twice}: give one of them another schedulerName")
    return found


def _played(trace: Trace, chosen: Chosen, until: float | None, seed: int) -> Figures:
    name, configuration, profile = chosen
    player = Player(trace, configuration, profile, seed)
    notes = []
    if configuration.extenders:
        notes.append(f"{name}: its extenders are not asked in a replay")
    if not player.parts and any(job.is_part for job in trace.jobs):
        notes.append(f"{name}: it knows no parts of GPUs, so each part counts as a whole GPU")
    with _bar(name, len(trace.jobs)) as bar:
        recording = player.play(until, bar)
    return figures(name, recording, notes)


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how far the replay is. Meanwhile only errors are logged: no warnings about slow plugins."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    log = logging.getLogger("gangline")
    before = log.level
    log.setLevel(logging.ERROR)
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=screen, disable=not screen.is_terminal, transient=True) as shown:
            task = shown.add_task(title, total=total)

            def went_on(done: int) -> None:
                if done % _EVERY == 0 or done == total:
                    shown.update(task, completed=done)

            yield went_on
    finally:
        log.setLevel(before)


def _show(found: Sequence[Figures], screen: Console) -> None:
    shown = table(
        "PROFILE",
        "FINISHED",
        "RUNNING",
        "WAITING",
        "EVICTED",
        "WAITED (MEDIAN)",
        "WAITED (P95)",
        "GPUS",
        "HIGHEST",
        "FRAGMENTED",
        "NODES",
        "TIME",
        "CPU TIME",
    )
    for each in found:
        shown.add_row(
            each.profile,
            *(f"{number}" for number in (each.finished, each.running, each.waiting, each.evictions)),
            duration(each.waits.median),
            duration(each.waits.p95),
            f"{each.use.gpus:.1%}",
            f"{each.highest_allocation:.1%}",
            f"{each.fragmentation:.2%}",
            f"{each.use.nodes:.1%}",
            duration(each.seconds),
            duration(each.cpu_seconds),
        )
    put(screen, shown)
