"""`gangline whatif`: whether a gang that does not exist yet would start, and what a drain of nodes would do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from rich.console import Console

from gangline.api.plugin import Clock
from gangline.clock import SystemClock
from gangline.commands import options
from gangline.commands.answering import gang_of, remedies_of
from gangline.commands.draining import Drain, drain
from gangline.commands.finding import find_judges
from gangline.commands.judging import Judged, check_level, judge
from gangline.commands.keeping import keep_again
from gangline.commands.options import Connection
from gangline.commands.output import put, table, told
from gangline.commands.reaching import reached
from gangline.commands.remedying import show_remedies
from gangline.commands.running import Judges
from gangline.commands.seeing import point_out_emptiness
from gangline.commands.snapshot import recorded
from gangline.commands.supposing import NAME, SupposedGang, parse_gang, suppose
from gangline.errors import ConfigError
from gangline.explain.snapshots import RecordedClient
from gangline.kube.interface import Client
from gangline.plurals import many
from gangline.process import interrupting
from gangline.profile.runtime import first_grouping
from gangline.remedies import Remedies

_MOST_ROWS = 100
_ITSELF = f"gang {NAME}/{NAME}: "
"""What messages begin with. The user knows no gang of this name."""


class Supposition(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a supposed gang would start, and where."""

    gang: str
    """The gang in words."""
    profile: str
    judged_by: str
    """The source of the profile."""
    starts: bool
    placement: str
    """The name of the set of nodes; "" if the gang would wait."""
    score: float
    nodes: dict[str, int]
    """By node: the number of the gang's pods that it would get."""
    message: str
    """Why the gang would wait; "" if it would start."""
    remedies: Remedies | None


def _checked_size(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The value of --gang. Raises BadParameter for a value that is not of the form MEMBERSxGPUS."""
    try:
        if value is not None:
            parse_gang(value)
    except ConfigError as error:
        raise click.BadParameter(f"{error.path!r}: {error.why}", context, parameter) from error
    return value


@click.command()
@click.option(
    "--gang",
    "size",
    metavar="MEMBERSxGPUS",
    default=None,
    callback=_checked_size,
    help="Number of pods, and GPUs of each: 32x8.",
)
@click.option("--level", default="", help="The topology level that the gang requires, for example leaf.")
@options.DRAIN
@options.CONFIG
@options.PROFILE
@options.SCHEDULER
@options.connection
@options.SNAPSHOT
@options.output()
def whatif(
    size: str | None,
    level: str,
    drains: Sequence[str],
    files: Sequence[str],
    profile: str | None,
    scheduler: str | None,
    connection: Connection,
    snapshot: str | None,
    output: str,
) -> None:
    """Say whether a gang would start on the cluster as it is, and what would let it start; or what becomes of the pods
    of nodes that are drained. Nothing is created, and nothing is changed.

    The pods of the gang request GPUs (nvidia.com/gpu) and nothing else. Preemption is not counted on: a gang that would
    have to evict pods would wait.
    """
    if (size is None) == (not drains):
        raise click.UsageError("name either a gang with --gang, or nodes with --drain")
    if level and drains:
        raise click.UsageError("--level is for a gang")
    gang = parse_gang(size, level) if size is not None else None
    found = interrupting.run(_found(gang, drains, WhatIfOptions(files, profile, scheduler, connection, snapshot)))
    most = sys.maxsize if output == "wide" else _MOST_ROWS
    if isinstance(found, Drain):
        pods = [*(move.pod for move in found.moves), *(loss.pod for loss in found.losses)]
        names = [f"pod/{pod.partition('/')[2]}" for pod in pods]
        click.echo(told(found, output, names, lambda screen: show_drain(found, screen, most)), nl=False)
    else:
        names = [f"node/{name}" for name in found.nodes]
        click.echo(told(found, output, names, lambda screen: show(found, screen, most)), nl=False)


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """The options that say which cluster or snapshot answers, and by which profiles."""

    files: Sequence[str]
    profile: str | None
    scheduler: str | None
    connection: Connection
    snapshot: str | None


async def _found(gang: SupposedGang | None, nodes: Sequence[str], asked: WhatIfOptions) -> Supposition | Drain:
    """The answer of a snapshot or of the cluster."""
    if asked.snapshot is not None:
        recording, by, clock = await recorded(Path(asked.snapshot), asked.files, asked.profile)
        return await _answer(recording, asked.snapshot, gang, nodes, by, clock)
    async with reached(asked.connection) as there:
        by = await find_judges(there, asked.files, asked.profile, asked.scheduler)
        return await _answer(there.client, there.where, gang, nodes, by, SystemClock())


async def _answer(
    client: Client, where: str, gang: SupposedGang | None, nodes: Sequence[str], by: Judges, clock: Clock
) -> Supposition | Drain:
    """Look at the cluster once; nothing is changed. Raises ApiError, ConfigError and UsageError."""
    judged = await judge(client, by.configuration, clock)
    point_out_emptiness(judged.cluster.nodes.size, where, is_snapshot=isinstance(client, RecordedClient))
    unasked = [f"the running scheduler was not asked: {by.unasked}"] if by.unasked else []
    for note in (*unasked, *keep_again(judged)):
        click.echo(f"note: {note}", err=True)
    return ask(judged, gang, by, clock) if gang is not None else drain(judged, nodes)


def ask(judged: Judged, gang: SupposedGang, by: Judges, clock: Clock) -> Supposition:
    """What would become of the gang on the listed cluster. Raises ConfigError and UsageError."""
    runtimes = [judged.runtimes[by.profile]] if by.profile else list(judged.runtimes.values())
    runtime = first_grouping(runtimes)
    if runtime is None:
        raise ConfigError("", by.source, "no profile places the pods of a gang together: enable GangPermit in one")
    if gang.level and judged.cluster.nodes.size:
        check_level(runtime.topology, gang.level)
    judged, first = suppose(gang, judged, runtime, clock)
    remedies = remedies_of(judged, runtime, first, clock)
    report = gang_of(judged, runtime, first, clock)
    places = report.places if report is not None else {}
    return Supposition(
        gang=str(gang),
        profile=runtime.name,
        judged_by=by.source,
        starts=bool(places),
        placement=report.placement if report is not None else "",
        score=report.score if report is not None else 0.0,
        nodes=dict(sorted(Counter(places.values()).items())),
        message=report.message.removeprefix(_ITSELF) if report is not None else "",
        remedies=remedies,
    )


def show(found: Supposition, screen: Console, most: int = _MOST_ROWS) -> None:
    """Print what would become of the gang."""
    by = f"by the profile {found.profile} of {found.judged_by}"
    if found.starts:
        screen.print(f"{found.gang} would start on {found.placement} (score {found.score:.2f} of 1), {by}:")
        rows = table("NODE", "PODS")
        for node, number in list(found.nodes.items())[:most]:
            rows.add_row(node, str(number))
        put(screen, rows)
        if len(found.nodes) > most:
            screen.print(f"and {many(len(found.nodes) - most, 'more node')}: -o wide tells of all")
        return
    screen.print(f"{found.gang} would wait, {by}:")
    screen.print(f"  {found.message}", markup=False)
    show_remedies(found.remedies, None, screen)


def show_drain(found: Drain, screen: Console, most: int = _MOST_ROWS) -> None:
    """Print what would become of the pods of the drained nodes."""
    if found.moves:
        rows = table("POD", "FROM", "TO", "GPUS")
        for move in found.moves[:most]:
            rows.add_row(move.pod, move.source, move.destination, str(move.gpus))
        put(screen, rows)
        screen.print()
    if found.losses:
        rows = table("POD", "FROM", "GPUS", "WHAT BECOMES OF IT")
        for loss in found.losses[:most]:
            rows.add_row(loss.pod, loss.source, str(loss.gpus), loss.why)
        put(screen, rows)
        screen.print()
    if max(len(found.moves), len(found.losses)) > most:
        screen.print("not all pods are shown: -o wide tells of all")
    moved = f"{many(len(found.moves), 'pod')} with {many(found.gpus_moved, 'GPU')}"
    lost = f"{many(len(found.losses), 'pod')} with {many(found.gpus_lost, 'GPU')}"
    screen.print(
        f"drained {', '.join(found.nodes)}: {moved} would start anew on other nodes, and {lost} would have no node"
    )
