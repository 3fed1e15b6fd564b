"""Shared code of commands that show a whole cluster: lists it once, and shows it with the levels of one profile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.commands.profiles import choose
from gangline.commands.running import Running, find_running
from gangline.explain.live import load_live
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.profile.assembly import judging_runtimes
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
    """The running scheduler; None if it was not found or not asked for."""


def see(
    kubeconfig: str | None, files: Sequence[str], profile: str | None, scheduler: str | None = None, ask: bool = False
) -> SeenCluster:
    """The cluster as the profiles see it, with the running scheduler if it is asked for.

    Raises ApiError and ConfigError.
    """
    configuration = choose(files, profile)
    cluster, pending, running = asyncio.run(_load(kubeconfig, scheduler, ask))
    runtimes = list(judging_runtimes(configuration, cluster).values())
    grouping = next((runtime for runtime in runtimes if runtime.handle.groups_pods), runtimes[0])
    return SeenCluster(cluster, pending, grouping.topology, running)


async def _load(
    kubeconfig: str | None, scheduler: str | None, ask: bool
) -> tuple[Cache, list[PodInfo], Running | None]:
    credentials = auth.load(kubeconfig)
    async with HttpClient(credentials) as client:
        running = await find_running(client, scheduler, credentials) if ask else None
        return *await load_live(client, with_groups=True), running
