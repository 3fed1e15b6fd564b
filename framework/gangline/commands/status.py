"""`gangline status`: shows the cluster, gangs and waiting pods at a glance."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import click
from rich.console import Console

from gangline.commands import options
from gangline.commands.options import Connection, PodChoice
from gangline.commands.output import claim_table, put, table, told
from gangline.commands.profiles import choose
from gangline.commands.reaching import reached
from gangline.commands.seeing import see
from gangline.commands.watching import once_or_follow
from gangline.overview.device_use import by_driver
from gangline.overview.summary import Gang, Overview, overview
from gangline.plurals import many
from gangline.process import interrupting

_MOST_WAITING = 20
_MOST_DOMAINS = 20


@click.command()
@options.CONFIG
@options.PROFILE
@options.SCHEDULER
@options.connection
@options.namespaced
@options.WATCH
@options.output()
def status(
    connection: Connection,
    scope: PodChoice,
    files: Sequence[str],
    profile: str | None,
    scheduler: str | None,
    watches: bool,
    output: str,
) -> None:
    """Show the GPUs of the cluster, and the gangs and waiting pods of a namespace. Nothing is changed.

    A gang is shown if one of its pods is in the namespace and has the labels.
    """
    configuration = choose(files, profile)

    async def run() -> None:
        async with reached(connection) as there:
            default = there.credentials.namespace

            async def look() -> str:
                seen = await see(there, configuration, scheduler, ask=True)
                serves = seen.running.serves if seen.running is not None else None
                found = overview(seen.cluster, seen.pending, seen.topology, serves, scope.shown(default))
                most = sys.maxsize if output == "wide" else _MOST_WAITING
                return told(found, output, _names(found), lambda screen: show(found, screen, most, scope.wider))

            await once_or_follow(there.client, look, watches, output)

    interrupting.run(run())


def _names(found: Overview) -> Iterator[str]:
    """The gangs and waiting pods as podgroup/NAME and pod/NAME, in the form that `gangline explain` takes."""
    yield from (f"podgroup/{gang.name.partition('/')[2]}" for gang in found.gangs)
    yield from (f"pod/{pod.pod.partition('/')[2]}" for pod in found.waiting)


def show(found: Overview, screen: Console, most: int = _MOST_WAITING, wider: str = "") -> None:
    """Print an overview as tables with at most so many waiting pods and claims; `wider` says how to be shown more."""
    gpus = found.gpus
    screen.print(
        f"{gpus.used} of {gpus.total} GPUs on {many(gpus.nodes, 'node')} in use: utilization {gpus.utilization:.0%}, "
        f"efficiency {gpus.efficiency:.0%} ({gpus.stranded} stranded); "
        f"{many(gpus.empty_nodes, 'node')} empty, {gpus.partial_nodes} partly used"
    )
    if found.levels:
        screen.print("complete: " + ", ".join(f"{use.level} {use.complete} of {use.domains}" for use in found.levels))
    broken = [use for use in found.domains if use.ready < use.nodes]
    if broken:
        shown = ", ".join(f"{use.domain} {use.ready}/{use.nodes}" for use in broken[:_MOST_DOMAINS])
        more = f" and {len(broken) - _MOST_DOMAINS} more" if len(broken) > _MOST_DOMAINS else ""
        others = len(found.domains) - len(broken)
        rest = f"; all in the other {many(others, 'domain')}" if others else ""
        screen.print(f"ready nodes: {shown}{more}{rest}")
    _show_devices(found, screen, most)
    _show_gangs(found, screen)
    if found.waiting:
        screen.print()
        pods = table("PENDING", "SCHEDULER", "WHY")
        for pod in found.waiting[:most]:
            pods.add_row(pod.pod, pod.scheduler_name, pod.message or "not yet tried")
        put(screen, pods)
        if len(found.waiting) > most:
            screen.print(f"and {len(found.waiting) - most} more: -o wide shows all")
    _show_rest(found, screen, wider)
    if found.serves is None and (found.waiting or any(gang.waiting for gang in found.gangs)):
        screen.print()
        screen.print(
            "no running scheduler of Gangline was found, so it is not known which names are served; "
            "--scheduler URL says where one answers"
        )


def _show_gangs(found: Overview, screen: Console) -> None:
    """Print the gangs, and the room that is reserved for some of them."""
    if not found.gangs:
        return
    screen.print()
    gangs = table("GANG", "DIALECT", "PLACED", "WAITING", "WHERE", "ESTIMATED START", "WHY")
    for gang in found.gangs:
        gangs.add_row(*_row(gang))
    put(screen, gangs)
    for gang in found.gangs:
        if gang.reserved is not None:
            kept = gang.reserved
            room = f"{many(kept.nodes, 'node')} with {many(kept.gpus, 'GPU')}"
            screen.print(f"reserved: {room} for {gang.name} since {kept.since}, until {kept.until} at most")


def _show_rest(found: Overview, screen: Console, wider: str) -> None:
    """Print how many gangs and waiting pods are not shown."""
    rest = found.not_shown
    if rest is None:
        return
    lines = []
    if not found.gangs and not found.waiting:
        lines.append("there is no gang and no waiting pod to show")
    if hidden := [many(n, what) for n, what in ((rest.gangs, "gang"), (rest.waiting, "waiting pod")) if n]:
        lines.append(f"not shown: {' and '.join(hidden)}{f' ({wider})' if wider else ''}")
    for line in ["", *lines] if lines else []:
        screen.print(line)


def _show_devices(found: Overview, screen: Console, most: int) -> None:
    """Print the devices of dynamic resource allocation, and ResourceClaims with the devices they have or wait for."""
    for use, nodes in by_driver(found.devices):
        tainted = f", {use.tainted} tainted" if use.tainted else ""
        screen.print(
            f"{use.driver}: {use.taken} of {many(use.devices, 'device')} on {many(nodes, 'node')} taken, "
            f"{use.free} free{tainted}"
        )
    for pool in found.devices.unusable[:_MOST_DOMAINS]:
        screen.print(f"{pool.driver}: the pool {pool.pool} cannot be used: {pool.why}", markup=False)
    if found.devices.classes:
        screen.print()
        classes = table("DEVICE CLASS", "DEVICES", "FREE")
        for each in found.devices.classes:
            classes.add_row(each.name, str(each.devices), each.problem or str(each.free))
        put(screen, classes)
    waiting = [claim for claim in found.claims if claim.waits]
    if waiting:
        screen.print()
        put(screen, claim_table(waiting[:most]))
        if len(waiting) > most:
            screen.print(f"and {len(waiting) - most} more: -o wide shows all")


def _row(gang: Gang) -> tuple[str, ...]:
    return (
        gang.name,
        gang.dialect,
        f"{gang.placed}/{gang.min_member or '?'}",
        str(gang.waiting),
        ", ".join(gang.where) or "-",
        gang.estimated_start or "-",
        gang.message or ("not yet tried" if gang.waiting else "-"),
    )
