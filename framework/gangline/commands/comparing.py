"""`gangline simulate` from a cluster: simulates the cluster without and with changes, and shows the difference."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from gangline import config
from gangline.commands import options
from gangline.commands.options import Command, Connection
from gangline.commands.output import name_of, put, table, told
from gangline.commands.profiles import choose
from gangline.commands.seeing import point_out_emptiness
from gangline.commands.snapshot import read, take_live
from gangline.config import SchedulerConfiguration
from gangline.explain.snapshots import Snapshot
from gangline.plurals import many
from gangline.process import interrupting
from gangline.simulate.changing import MOST_NEW, NewNodes
from gangline.simulate.comparing import Difference, Side, SupposedChanges, compare
from gangline.simulate.folders import Sorted

_MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The options of `gangline simulate` that are about a cluster."""

    is_live: bool
    file: str | None
    """The file of a snapshot; None without the option."""
    drains: Sequence[str]
    new_nodes: Sequence[NewNodes]
    scheduler: str | None
    connection: Connection

    @property
    def is_asked(self) -> bool:
        """Whether the simulation starts from a cluster."""
        return self.is_live or self.file is not None


def about_cluster(command: Command) -> Command:
    """Add the options about a cluster; the command is called with a `cluster`."""

    @wraps(command)
    def chosen(
        from_cluster: bool,
        snapshot: str | None,
        drains: Sequence[str],
        new_nodes: Sequence[tuple[int, str, str]],
        scheduler: str | None,
        connection: Connection,
        **others: Any,
    ) -> None:
        if from_cluster and snapshot is not None:
            raise click.UsageError("name either --from-cluster or --snapshot")
        if (drains or new_nodes) and not from_cluster and snapshot is None:
            raise click.UsageError("--drain and --add-nodes need a cluster: --from-cluster or --snapshot")
        new = [NewNodes(count, like) for count, _, like in new_nodes]
        if sum(each.count for each in new) > MOST_NEW:
            raise click.UsageError(f"--add-nodes: at most {MOST_NEW} nodes in all")
        command(cluster=ClusterChoice(from_cluster, snapshot, drains, new, scheduler, connection), **others)

    decorated = options.SCHEDULER(options.connection(chosen))
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_OPTIONS = (
    click.option("--from-cluster", is_flag=True, help="Start from the cluster as it is now."),
    click.option(
        "--snapshot",
        type=options.InputFile(dir_okay=False),
        default=None,
        help="Start from a file of `gangline snapshot save`; `-`: from standard input.",
    ),
    options.DRAIN,
    click.option(
        "--add-nodes",
        "new_nodes",
        type=(click.IntRange(1, MOST_NEW), click.Choice(["like"]), options.NODE),
        metavar="N like NODE",
        multiple=True,
        help="Add N new nodes like an existing node; may be repeated.",
    ),
)


def tell_difference(
    cluster: ClusterChoice,
    found: Sorted,
    files: Sequence[str],
    profile: str | None,
    seconds: float,
    seed: int,
    output: str,
) -> None:
    """Print the difference that changes of a cluster make."""
    if not (found.manifests or found.profiles or files or profile or cluster.drains or cluster.new_nodes):
        raise click.UsageError("name a change: manifests, --drain, --add-nodes, --profile or --config")
    snapshot, where = _start(cluster)
    configuration = other_profiles(snapshot, where, files, profile, found.profiles)
    changes = SupposedChanges(found.manifests, cluster.drains, cluster.new_nodes, configuration)
    difference = compare(snapshot, where, changes, seconds, seed)
    point_out_emptiness(difference.before.nodes, where, is_snapshot=cluster.file is not None)
    for warning in (*found.notes, *difference.warnings):
        click.echo(f"warning: {warning}", err=True)
    most = sys.maxsize if output == "wide" else _MOST_ROWS
    names = (name_of(each.pod) for each in difference.pods)
    click.echo(told(difference, output, names, lambda screen: show(difference, screen, most)), nl=False)


def _start(cluster: ClusterChoice) -> tuple[Snapshot, str]:
    """The cluster to start from, and its name for messages. Raises ApiError and ConfigError."""
    if cluster.file is not None:
        return read(Path(cluster.file)), cluster.file
    return interrupting.run(take_live((), None, cluster.scheduler, cluster.connection))


def other_profiles(
    snapshot: Snapshot, where: str, files: Sequence[str], profile: str | None, texts: Mapping[str, str]
) -> SchedulerConfiguration | None:
    """The profiles to simulate with instead of the snapshot's; None if the user names no profiles. Raises ConfigError.

    Profiles of `files`, or of `texts` from manifests, serve their schedulerNames; the snapshot's profiles serve the
    other schedulerNames. An installed profile, named by `profile`, serves every schedulerName.
    """
    if profile is None and not files and not texts:
        return None
    served = config.load(snapshot.configuration, where)
    if profile is not None:
        mine = choose((), profile)
        first = mine.profiles[0]
        names = dict.fromkeys(each.scheduler_name for each in (*served.profiles, *mine.profiles))
        renamed = tuple(dataclasses.replace(first, scheduler_name=name) for name in names)
        return msgspec.structs.replace(mine, profiles=renamed)
    mine = config.load_files([Path(file) for file in files]) if files else config.load_texts(texts)
    taken_names = {each.scheduler_name for each in mine.profiles}
    others = tuple(each for each in served.profiles if each.scheduler_name not in taken_names)
    return msgspec.structs.replace(mine, profiles=(*mine.profiles, *others))


def show(found: Difference, screen: Console, most: int = _MOST_ROWS) -> None:
    """Print the difference with at most `most` pods. If `most` is more than the default, pods that wait both without
    and with the changes are printed, too.
    """
    totals = table("", "BEFORE", "AFTER", "CHANGE")
    for name, before, after in _totals(found.before, found.after):
        totals.add_row(name, str(before), str(after), f"{after - before:+d}" if after != before else "-")
    put(screen, totals)
    if found.pods:
        screen.print()
        _show_pods(found, screen, most)
    still = [each for each in found.waiting if each.before is not None and each.after is not None]
    if still and most > _MOST_ROWS:
        screen.print()
        rows = table("WAITS IN BOTH", "WHY BEFORE", "WHY AFTER")
        for each in still:
            rows.add_row(each.pod, each.before, each.after)
        put(screen, rows)
    screen.print()
    changed = many(len(found.pods), "pod") if found.pods else "no pod"
    screen.print(f"the changes make a difference to {changed} within {found.seconds:g} s of virtual time")
    if still and most <= _MOST_ROWS:
        screen.print(f"{many(len(still), 'pod')} would wait with and without the changes: -o wide says why")


def _show_pods(found: Difference, screen: Console, most: int) -> None:
    waits_before = {each.pod for each in found.waiting if each.before is not None}
    waits_after = {each.pod for each in found.waiting if each.after is not None}
    rows = table("POD", "GPUS", "BEFORE", "AFTER", "WHY")
    for each in found.pods[:most]:
        before = each.before or ("waits" if each.pod in waits_before else "-")
        after = each.after or ("waits" if each.pod in waits_after else "-")
        rows.add_row(each.pod, str(each.gpus), before, after, each.why or "-")
    put(screen, rows)
    if len(found.pods) > most:
        screen.print(f"and {len(found.pods) - most} more: -o wide shows all")


def _totals(before: Side, after: Side) -> Iterator[tuple[str, int, int]]:
    yield "nodes", before.nodes, after.nodes
    yield "GPUs", before.gpus.total, after.gpus.total
    yield "GPUs in use", before.gpus.used, after.gpus.used
    yield "GPUs stranded", before.gpus.stranded, after.gpus.stranded
    yield "nodes with only free GPUs", before.gpus.empty_nodes, after.gpus.empty_nodes
    yield "nodes partly in use", before.gpus.partial_nodes, after.gpus.partial_nodes
    complete = {each.level: each.complete for each in before.levels}
    for level in after.levels:
        yield f"{level.level} domains with only free GPUs", complete.get(level.level, 0), level.complete
    yield "pods placed", before.placed, after.placed
    yield "pods that wait", before.waiting, after.waiting
