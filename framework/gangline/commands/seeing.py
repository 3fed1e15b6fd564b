"""What the commands share that look at a whole cluster: list it once, and see it as one profile does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gangline.cache import Cache
from gangline.commands.profiles import choose
from gangline.explain.case import cluster_runtimes
from gangline.explain.live import load_live
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.pods import PodInfo
from gangline.topology import Topology


def see(kubeconfig: str | None, files: Sequence[str], profile: str | None) -> tuple[Cache, list[PodInfo], Topology]:
    """The cluster, the pods that wait, and the topology of the first profile that groups pods, or else of the first.

    Raises ApiError and ConfigError.
    """
    configuration = choose(files, profile)
    cluster, pending = asyncio.run(_load(kubeconfig))
    runtimes = list(cluster_runtimes(cluster, configuration).values())
    grouping = next((runtime for runtime in runtimes if runtime.handle.placed is not None), runtimes[0])
    return cluster, pending, grouping.topology


async def _load(kubeconfig: str | None) -> tuple[Cache, list[PodInfo]]:
    async with HttpClient(auth.load(kubeconfig)) as client:
        return await load_live(client, with_groups=True)
