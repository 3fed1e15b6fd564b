"""Shared code of commands that show a whole cluster: lists it once, and shows it with the levels of one profile."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gangline.commands.finding import find_running
from gangline.commands.reaching import Reached
from gangline.commands.running import Running
from gangline.config import SchedulerConfiguration
from gangline.explain.live import load_live
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import first_grouping
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class SeenCluster:
    """A cluster as it was when it was listed."""

    cluster: Cache
    pending: list[PodInfo]
    topology: Topology
    """The topology of the first profile that groups pods, or else of the first profile."""
    running: Running | None
    """The running scheduler; None if it was not found, or not looked for."""


def point_out_emptiness(nodes: int, where: str, is_snapshot: bool = False) -> None:
    """Write a line to standard error if a listed cluster, or a snapshot, has no nodes."""
    if nodes:
        return
    if is_snapshot:
        said = f"{where}: the snapshot has no nodes; take one of a cluster that has with `gangline snapshot save`"
    else:
        said = f"{where}: the cluster has no nodes; add nodes, or choose another context with --context"
    click.echo(said, err=True)


async def see(
    there: Reached, configuration: SchedulerConfiguration, scheduler: str | None = None, ask: bool = False
) -> SeenCluster:
    """List the cluster, and build the levels of the profiles on it. With `ask`, the running scheduler is looked for, at
    the address `scheduler` if there is one.

    Raises ApiError and ConfigError. If the cluster has no nodes, a line on standard error says so.
    """
    running = None
    if ask:
        async with find_running(there, scheduler) as found:
            running = found.running
    cluster, pending = await load_live(there.client, with_groups=True)
    point_out_emptiness(cluster.nodes.size, there.where)
    runtimes = list(judging_runtimes(configuration, cluster).values())
    grouping = first_grouping(runtimes) or runtimes[0]
    return SeenCluster(cluster, pending, grouping.topology, running)
