"""The command `gangline defrag`: shows which pods would be moved to make room, and moves them."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import msgspec
from rich.console import Console

from gangline import ConfigError, Handle, SystemClock
from gangline.command_line import (
    Connection,
    Judged,
    Reached,
    check_level,
    choose,
    drawn,
    judge,
    many,
    options,
    point_out_emptiness,
    put,
    reached,
    table,
    told,
)
from gangline_plugins.defragmentation.applying import Applying
from gangline_plugins.defragmentation.arguments import DefragmentationArgs
from gangline_plugins.defragmentation.plan import Move, MovePlan
from gangline_plugins.defragmentation.planning import Planner
from gangline_plugins.defragmentation.plugin import Defragmentation
from gangline_plugins.defragmentation.record import record_of

_MOST_STEPS = 3
"""At most this many pods of a move are shown one by one."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of the command line."""

    files: Sequence[str]
    profile: str | None
    connection: Connection
    namespace: str | None
    group: str | None
    free_leaves: int | None
    level: str
    most_moves: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A plan, with the handle and the arguments that it was made with."""

    plan: MovePlan
    handle: Handle
    args: DefragmentationArgs


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(
        (
            click.option(
                "--group",
                metavar="[NAMESPACE/]NAME",
                help="The waiting gang to make room for. Default: the gang that has waited longest.",
            ),
            click.option(
                "-n", "--namespace", metavar="NAME", help="The namespace of the gang. Default: that of the context."
            ),
            click.option("--free-leaves", type=click.IntRange(1), metavar="N", help="Free so many complete domains."),
            click.option(
                "--level", default="leaf", show_default=True, help="The level of the domains to free; host means nodes."
            ),
            click.option(
                "--max-moves", "most_moves", type=click.IntRange(1), help="At most so many moves at the same time."
            ),
            options.CONFIG,
            options.PROFILE,
            options.connection,
        )
    ):
        command = option(command)
    return command


@click.group()
def defrag() -> None:
    """Make room by moving running pods and gangs aside, at the least cost."""


@defrag.command(short_help="Show what would be moved, and what that costs.")
@_options
@options.output()
def plan(output: str, **options: Any) -> None:
    """Show what would be moved, what that costs and what it frees; nothing is changed."""
    found = asyncio.run(_plan(_wish(options))).plan
    names = [f"pod/{step.name}" for step in found.steps]
    click.echo(told(found, output, names, lambda screen: show(found, screen, output == "wide")), nl=False)


@defrag.command(short_help="Plan, show the plan, and carry it out.")
@_options
@click.option("--yes", is_flag=True, help="Move the pods without asking first.")
def apply(yes: bool, **options: Any) -> None:
    """Plan, show the plan, and carry it out; stops at the first surprise."""
    wish = _wish(options)
    found = asyncio.run(_plan(wish))
    click.echo(drawn(lambda screen: show(found.plan, screen)), nl=False)
    if not found.plan.moves:
        if not found.plan.is_met:
            raise click.ClickException(f"nothing is moved for {found.plan.goal}")
        return
    if not yes:
        click.confirm(f"Move {many(len(found.plan.steps), 'pod')}?", abort=True)
    asyncio.run(_apply(wish, found))


def _wish(options: dict[str, Any]) -> Wish:
    if options["group"] is not None and options["free_leaves"] is not None:
        raise click.UsageError("--group and --free-leaves exclude each other")
    return Wish(**options)


async def _plan(wish: Wish) -> Found:
    configuration = choose(wish.files, wish.profile)
    async with reached(wish.connection) as there:
        judged = await judge(there.client, configuration)
        point_out_emptiness(judged.cluster.nodes.size, there.where)
        return find(judged, _within(wish, there), there.where)


def _within(wish: Wish, there: Reached) -> Wish:
    """The wish with the namespace of its gang: that in `--group`, else that in `--namespace`, else the context's."""
    if wish.group is None:
        return wish
    name = wish.group.removeprefix("podgroup/")
    namespace = wish.namespace or there.credentials.namespace or "default"
    return replace(wish, group=name if "/" in name else f"{namespace}/{name}")


async def _apply(wish: Wish, found: Found) -> None:
    async with reached(wish.connection) as there:
        record = record_of(found.plan, found.handle.nodes, uuid.uuid4().hex, 0.0)
        await Applying(there.client, SystemClock(), found.args, click.echo).carry_out(found.plan, record)
    click.echo(f"done: {many(len(found.plan.steps), 'pod')} moved")


def find(judged: Judged, wish: Wish, where: str) -> Found:
    """The plan for the options of the command line; `where` names the cluster. Raises GanglineError and UsageError."""
    if wish.free_leaves is not None:
        runtimes = list(judged.runtimes.values())
        runtime = next((each for each in runtimes if each.handle.groups_pods), runtimes[0])
        handle, args = runtime.handle, _args(runtime.profile.plugins, wish)
        if judged.cluster.nodes.size:
            check_level(handle.topology, wish.level)
        return Found(Planner(handle, args).for_domains(wish.level, wish.free_leaves), handle, args)
    key = _key(judged, wish, where)
    if not key:
        runtime = next(iter(judged.runtimes.values()))
        goal, why = (
            ("the gangs that wait", "no gang waits") if wish.group is None else (f"gang {wish.group}", "it runs")
        )
        nothing = MovePlan(goal, message=f"no move is needed: {why}", is_met=True)
        return Found(nothing, runtime.handle, _args(runtime.profile.plugins, wish))
    runtime = judged.runtimes[judged.groups[key].pod.scheduler_name]
    attempt = runtime.handle.attempt(key)
    if attempt is None:
        raise ConfigError(where, f"gang {wish.group or key}", "cannot be tried: see its events")
    args = _args(runtime.profile.plugins, wish)
    return Found(Planner(runtime.handle, args).for_group(attempt), runtime.handle, args)


def _key(judged: Judged, wish: Wish, where: str) -> str:
    """The key of the group to plan for; "" if none waits. Raises ConfigError."""
    if wish.group is None:
        return next(iter(judged.groups), "")
    keys = [key for key in judged.groups if key.partition(":")[2] == wish.group]
    if not keys:
        placed = any(_is_placed(judged, wish.group, pod.uid) for pod in judged.cluster.pods.values())
        if placed:
            return ""
        why = f"there is no gang {wish.group} of these profiles; `gangline status -A` shows gangs"
        raise ConfigError(where, "", why)
    return keys[0]


def _is_placed(judged: Judged, name: str, uid: str) -> bool:
    pod = judged.cluster.pods[uid]
    runtime = judged.runtimes.get(pod.scheduler_name)
    return runtime is not None and runtime.group_key(pod).partition(":")[2] == name


def _args(plugins: Any, wish: Wish) -> DefragmentationArgs:
    """The arguments of the profile's plugin, or the defaults if the profile does not have the plugin."""
    plugin = plugins.get(Defragmentation.name)
    args = plugin.args if isinstance(plugin, Defragmentation) else DefragmentationArgs()
    return args if wish.most_moves is None else msgspec.structs.replace(args, most_moves=wish.most_moves)


def show(found: MovePlan, screen: Console, is_wide: bool = False) -> None:
    """Print a plan as a table; `is_wide` with every pod of a move."""
    if found.moves:
        rows = table("BATCH", "MOVE", "FROM", "TO", "GPU-SECONDS")
        for move in found.moves:
            rows.add_row(
                str(move.batch + 1),
                move.name,
                *_ends(move, len(move.steps) if is_wide else _MOST_STEPS),
                f"{move.cost:,.0f}",
            )
        put(screen, rows)
        screen.print()
        screen.print(
            f"{many(len(found.moves), 'move')} of {many(len(found.steps), 'pod')} for {found.cost:,.0f} GPU-seconds "
            f"would free {many(len(found.frees), 'node')} for {found.goal}, worth {found.worth:,.0f}"
        )
    else:
        screen.print(f"{found.goal}: {found.message}")
    if found.protected:
        reasons = Counter(each.why for each in found.protected)
        screen.print("not moved: " + "; ".join(f"{number} {why}" for why, number in sorted(reasons.items())))


def _ends(move: Move, most: int) -> tuple[str, str]:
    shown, more = move.steps[:most], len(move.steps) - most
    rest = [f"and {more} more"] if more > 0 else []
    return (
        ", ".join([step.source for step in shown] + rest),
        ", ".join([step.destination for step in shown] + rest),
    )
