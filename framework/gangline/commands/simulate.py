"""`gangline simulate`: schedules manifests on a cluster in memory and shows the node of every pod."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gangline import config
from gangline.commands import options
from gangline.commands.comparing import ClusterChoice, about_cluster, tell_difference
from gangline.commands.output import name_of, put, table, told
from gangline.commands.profiles import choose
from gangline.config import SchedulerConfiguration
from gangline.durations import parse_duration
from gangline.errors import GanglineError
from gangline.plurals import many
from gangline.process import interrupting
from gangline.simulate.arrivals import Sample
from gangline.simulate.folders import Sorted, sort_out
from gangline.simulate.session import NodeUse, Outcome
from gangline.simulate.session import simulate as run_simulation

if TYPE_CHECKING:
    from gangline.simulate.filming import Film

_SHOWN_PODS = 6
_SHOWN_SAMPLES = 20
_MOST_SAMPLES = 10_000


@click.command()
@click.argument("manifests", nargs=-1, type=options.InputFile(exists=True), metavar="[MANIFEST...]")
@about_cluster
@options.CONFIG
@options.PROFILE
@click.option(
    "--duration", default="1m", show_default=True, help="How long the simulated cluster runs, in virtual time."
)
@click.option("--every", default="", help="Also show the cluster at this interval, for example 30s.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random choice between equal nodes.")
@options.output()
@click.option(
    "--ui", is_flag=True, help="Then play the simulation in a browser, a second for each picture, until Ctrl-C."
)
def simulate(
    manifests: Sequence[str],
    cluster: ClusterChoice,
    files: Sequence[str],
    profile: str | None,
    duration: str,
    every: str,
    seed: int,
    output: str,
    ui: bool,
) -> None:
    """Schedule the objects in YAML files or folders without a cluster, or say what changes of a cluster would lead to.

    `-` is standard input. The simulation creates the pods of Jobs, Deployments, ReplicaSets and StatefulSets. Time is
    virtual: an hour passes in seconds. The simulation uses the profiles among the files, unless an option names others.
    A line of output names each document that is no object. The annotation gangline.dev/arrive-seconds on an object says
    after how many seconds the object is created.

    With --from-cluster or --snapshot the simulation starts from a cluster, which is only read, and runs twice: without
    and with the changes, which are manifests, --drain, --add-nodes, --profile and --config. The output is the
    difference.
    """
    seconds = _length(duration)
    interval = _interval(every, duration) if every else None
    if cluster.is_asked:
        if every or ui:
            raise click.UsageError("--every and --ui are for a simulation of manifests alone")
        tell_difference(cluster, sort_out(manifests), files, profile, seconds, seed, output)
        return
    if not manifests:
        raise click.UsageError("name manifests, or a cluster with --from-cluster or --snapshot")
    found = sort_out(manifests)
    film = _film(seconds) if ui else None
    outcome = run_simulation(found, _configuration(files, profile, found), seconds, seed, interval, film)
    if not outcome.nodes:
        outcome.warnings.append("there are no nodes: name a file with Node objects, too, or every pod stays pending")
    _tell(outcome, output)
    if film is not None:
        with suppress(KeyboardInterrupt):
            interrupting.run(_play(film))


def _interval(every: str, duration: str) -> float:
    """Seconds between two samples. Raises UsageError if that makes too many of them."""
    interval = _seconds("--every", every)
    if interval * _MOST_SAMPLES < _length(duration):
        raise click.UsageError(f"--every {every} in {duration} makes more than {_MOST_SAMPLES} samples")
    return interval


def _tell(outcome: Outcome, output: str) -> None:
    """Print the outcome in the form that --output names, and warnings on standard error."""
    for warning in outcome.warnings:
        click.echo(f"warning: {warning}", err=True)
    names = sorted([*(pod for node in outcome.nodes for pod in node.pods), *(pod.name for pod in outcome.pending)])
    most = sys.maxsize if output == "wide" else _SHOWN_PODS
    click.echo(told(outcome, output, map(name_of, names), lambda screen: show(outcome, screen, most)), nl=False)


def _film(seconds: float) -> Film:
    from gangline.simulate.filming import Film

    return Film(seconds)


async def _play(film: Film) -> None:
    from gangline.simulate.filming import play

    listener = await play(film)
    click.echo(f"http://127.0.0.1:{listener.port}/ui shows the simulation; Ctrl-C ends this", err=True)
    try:
        await asyncio.Event().wait()
    finally:
        await listener.stop()


def _length(text: str) -> float:
    """The virtual seconds of a simulation. Raises UsageError if there are none."""
    seconds = _seconds("--duration", text)
    if not seconds:
        raise click.UsageError(f"--duration {text!r} leaves no time for a pod: something like 90s or 1h30m is expected")
    return seconds


def _seconds(option: str, text: str) -> float:
    try:
        return float(parse_duration(text))
    except (ValueError, GanglineError):
        raise click.UsageError(f"{option} {text!r} is no duration: something like 90s or 1h30m is expected") from None


def _configuration(files: Sequence[str], profile: str | None, found: Sorted) -> SchedulerConfiguration:
    """The named profiles; else the profiles among the manifests, and installed profiles for other names."""
    chosen = choose(files, profile)
    if not found.profiles:
        return chosen
    where = ", ".join(found.profiles)
    if files or profile is not None:
        found.notes.append(f"{where}: left out, other profiles were named")
        return chosen
    mine = config.load_texts(found.profiles)
    names = {each.scheduler_name for each in mine.profiles}
    others = tuple(each for each in chosen.profiles if each.scheduler_name not in names)
    found.notes.append(f"{where}: its profiles are simulated: {', '.join(sorted(names))}")
    return msgspec.structs.replace(mine, profiles=(*mine.profiles, *others))


def show(outcome: Outcome, screen: Console, most: int = _SHOWN_PODS) -> None:
    """Print an outcome as tables with at most so many pods of each node."""
    devices = outcome.devices
    placed = table("NODE", *(device.upper() for device in devices), "CPU", "PODS")
    for node in outcome.nodes:
        cells = [_share(node, device) for device in devices]
        placed.add_row(node.name, *cells, _cpu(node), _names(node, most))
    put(screen, placed)
    if outcome.pending:
        screen.print()
        waiting = table("PENDING", "WHY")
        for pod in outcome.pending:
            waiting.add_row(pod.name, pod.why)
        put(screen, waiting)
    if outcome.series:
        screen.print()
        put(screen, _series(outcome.series))
    screen.print()
    running = sum(len(node.pods) for node in outcome.nodes)
    screen.print(
        f"{many(running, 'pod')} placed, {len(outcome.pending)} pending, {outcome.finished} finished after "
        f"{outcome.seconds:g} s of virtual time; {many(outcome.decisions, 'decision')} took "
        f"{outcome.decision_seconds * 1e3:.0f} ms"
    )


def _series(samples: Sequence[Sample]) -> Table:
    """At most so many samples, evenly chosen, so that they fit on a screen."""
    shown = table("SECONDS", "ARRIVED", "QUEUED", "RUNNING", "FINISHED", "GPUS IN USE", "PLACED", "ACCURACY")
    step = -(-len(samples) // _SHOWN_SAMPLES)
    for each in samples[step - 1 :: step]:
        numbers = (f"{each.seconds:g}", each.arrived, each.queued, each.running, each.finished)
        shares = (each.utilization, each.success_rate, each.accuracy)
        shown.add_row(*map(str, numbers), *(f"{share:.0%}" for share in shares))
    return shown


def _with_devices(pod: str, ids: Sequence[int], claimed: Sequence[str]) -> str:
    name = pod.removeprefix("default/")
    if claimed:
        return f"{name} ({', '.join(claimed)})"
    return f"{name} (GPU {','.join(map(str, ids))})" if ids else name


def _share(node: NodeUse, device: str) -> str:
    total, used = node.allocatable.get(device, 0), node.used.get(device, 0)
    if not total:
        return "-"
    bar = "█" * used + "░" * (total - used) + " " if total <= 16 else ""
    return f"{bar}{used}/{total}"


def _cpu(node: NodeUse) -> str:
    return f"{node.used.get('cpu', 0) / 1000:g}/{node.allocatable.get('cpu', 0) / 1000:g}"


def _names(node: NodeUse, most: int) -> str:
    """So many pods, each with its GPUs or devices where they are known."""
    shown = [
        _with_devices(name, node.devices.get(name, ()), node.claimed.get(name, ())) for name in sorted(node.pods)[:most]
    ]
    more = len(node.pods) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") or "-"
