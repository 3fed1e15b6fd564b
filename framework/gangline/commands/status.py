"""`gangline status`: shows the cluster, gangs and waiting pods at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click
import msgspec
from rich.console import Console

from gangline.commands import options
from gangline.commands.output import claim_table, console, table
from gangline.commands.seeing import see
from gangline.overview.device_use import by_driver
from gangline.overview.summary import Gang, Overview, overview

_MOST_WAITING = 20
_MOST_DOMAINS = 20


@click.command()
@options.CONFIG
@options.PROFILE
@options.SCHEDULER
@options.KUBECONFIG
@options.OUTPUT
def status(
    files: Sequence[str],
    profile: str | None,
    scheduler: str | None,
    kubeconfig: str | None,
    output: Literal["table", "json"],
) -> None:
    """Show GPUs, gangs and waiting pods, as read from the API server. Nothing is changed."""
    seen = see(kubeconfig, files, profile, scheduler, ask=True)
    serves = seen.running.serves if seen.running is not None else None
    found = overview(seen.cluster, seen.pending, seen.topology, serves)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        show(found, console())


def show(found: Overview, screen: Console) -> None:
    """Print an overview as tables."""
    gpus = found.gpus
    screen.print(
        f"{gpus.used} of {gpus.total} GPUs on {gpus.nodes} nodes in use: utilization {gpus.utilization:.0%}, "
        f"efficiency {gpus.efficiency:.0%} ({gpus.stranded} stranded); "
        f"{gpus.empty_nodes} nodes empty, {gpus.partial_nodes} partly used"
    )
    if found.levels:
        screen.print("complete: " + ", ".join(f"{use.level} {use.complete} of {use.domains}" for use in found.levels))
    broken = [use for use in found.domains if use.ready < use.nodes]
    if broken:
        shown = ", ".join(f"{use.domain} {use.ready}/{use.nodes}" for use in broken[:_MOST_DOMAINS])
        more = f" and {len(broken) - _MOST_DOMAINS} more" if len(broken) > _MOST_DOMAINS else ""
        screen.print(f"ready nodes: {shown}{more}; all in the other {len(found.domains) - len(broken)} domains")
    _show_devices(found, screen)
    _show_gangs(found, screen)
    if found.waiting:
        screen.print()
        pods = table("PENDING", "SCHEDULER", "WHY")
        for pod in found.waiting[:_MOST_WAITING]:
            pods.add_row(pod.pod, pod.scheduler_name, pod.message or "not yet tried")
        screen.print(pods)
        if len(found.waiting) > _MOST_WAITING:
            screen.print(f"and {len(found.waiting) - _MOST_WAITING} more")
    if found.serves is None and (found.waiting or any(gang.waiting for gang in found.gangs)):
        screen.print()
        screen.print(
            "no running scheduler of Gangline was found, so it is not known which names are served; "
            "--scheduler URL says where one answers"
        )


def _show_gangs(found: Overview, screen: Console) -> None:
    """The gangs, and the room that is reserved for some."""
    if not found.gangs:
        return
    screen.print()
    gangs = table("GANG", "DIALECT", "PLACED", "WAITING", "WHERE", "ESTIMATED START", "WHY")
    for gang in found.gangs:
        gangs.add_row(*_row(gang))
    screen.print(gangs)
    for gang in found.gangs:
        if gang.reserved is not None:
            kept = gang.reserved
            room = f"{kept.nodes} nodes with {kept.gpus} GPUs"
            screen.print(f"reserved: {room} for {gang.name} since {kept.since}, until {kept.until} at most")


def _show_devices(found: Overview, screen: Console) -> None:
    """The devices of dynamic resource allocation, and the claims that wait for some."""
    for use, nodes in by_driver(found.devices):
        tainted = f", {use.tainted} tainted" if use.tainted else ""
        screen.print(
            f"{use.driver}: {use.taken} of {use.devices} devices on {nodes} nodes taken, {use.free} free{tainted}"
        )
    for pool in found.devices.unusable[:_MOST_DOMAINS]:
        screen.print(f"{pool.driver}: the pool {pool.pool} cannot be used: {pool.why}", markup=False)
    if found.devices.classes:
        screen.print()
        classes = table("DEVICE CLASS", "DEVICES", "FREE")
        for each in found.devices.classes:
            classes.add_row(each.name, str(each.devices), each.problem or str(each.free))
        screen.print(classes)
    waiting = [claim for claim in found.claims if claim.waits]
    if waiting:
        screen.print()
        screen.print(claim_table(waiting[:_MOST_WAITING]))
        if len(waiting) > _MOST_WAITING:
            screen.print(f"and {len(waiting) - _MOST_WAITING} more")


def _row(gang: Gang) -> tuple[str, ...]:
    return (
        gang.name,
        gang.dialect,
        f"{gang.placed}/{gang.min_member}",
        str(gang.waiting),
        ", ".join(gang.where) or "-",
        gang.estimated_start or "-",
        gang.message or "-",
    )
