"""How long no pod is bound when the leader stops or is killed, or one process starts anew, on a real API server.

    python benchmarks/hand_over.py [--nodes 5000] [--pods 5000] [--stops 50] [--kills 10] [--restarts 10]
                                    [--lease 6] [--seed 1]

Two schedulers with the GPU profile elect a leader; pods are bound to most nodes. Then, one turn after the other, the
leader is told to stop (SIGTERM) or is killed (SIGKILL), while a pod comes every 20 ms. The clock runs from the signal
until the watch shows the first pod bound that the next leader has bound, as the events say. A new process takes the
place of the old one and is ready before the next turn. In the end one process without an election is started again and
again, while pods wait: from its start until the watch shows the first of them bound.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from gangline_chaos.schedulers import LEADS
from gangline_e2e.api import Api
from gangline_e2e.day import fabric
from gangline_e2e.day.fabric import Fabric
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gangs import PROFILE
from gangline_e2e.gpu_crds import install
from gangline_e2e.gpu_fleet import configuration
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline, election
from gangline_e2e.workloads import Manifest, gpu_pod

ELECTION = "gangline"
"""The Lease by which the replicas elect a leader."""
BEFORE_S, BETWEEN_S, AFTER = 0.3, 0.02, 5
"""Pods come from so many seconds before the signal, so many seconds apart, until the next leader has bound so many of
them."""
READY_S, BOUND_S = 180.0, 600.0
TIMES = {15: (2.0, 10.0), 6: (1.0, 4.0)}
"""For each length of a lease in seconds: the seconds between two renewals, and after which a leader gives up without
one.
"""


class Pair:
    """Two replicas and the pods that come."""

    def __init__(self, api: Api, replicas: Sequence[Gangline]) -> None:
        self._api = api
        self._replicas = replicas
        self._lease = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases/{ELECTION}"
        self._turns = 0
        self.bound: dict[str, float] = {}
        """When the watch showed each pod as bound, by name, on the monotonic clock."""

    async def follow(self) -> None:
        """Note when pods are bound, until cancelled."""
        async for event, pod in self._api.watch(self._api.pods):
            if event != "RESTART" and pod["spec"].get("nodeName"):
                self.bound.setdefault(pod["metadata"]["name"], time.monotonic())

    async def fill(self, pods: int) -> None:
        """Create so many pods, and wait until they are bound."""
        await self._api.create_many(_pod("first", number) for number in range(pods))
        await self._until_bound(pods)

    async def turn(self, number: signal.Signals) -> float:
        """One leader ends by a signal; the seconds from the signal until the next leader has bound a pod."""
        self._turns += 1
        leader, before = await self._leader(), await self._holder()
        coming = asyncio.create_task(self._come(f"turn-{self._turns}"))
        await asyncio.sleep(BEFORE_S)
        began = time.monotonic()
        leader.process.signal(number)
        next_leader = await self._next(before)
        already = len(self.bound)
        await self._until_bound(already + AFTER)
        coming.cancel()
        names = await self._bound_by(next_leader)
        await asyncio.to_thread(leader.process.wait, READY_S)
        await asyncio.to_thread(leader.start)
        return min(self.bound[name] for name in names) - began

    async def restart(self, alone: Gangline) -> float:
        """One process starts, binds and ends; the seconds from its start until the first pod is bound."""
        self._turns += 1
        already = dict(self.bound)
        await self._api.create_many(_pod(f"restart-{self._turns}", number) for number in range(AFTER))
        began = time.monotonic()
        await asyncio.to_thread(alone.start)
        await self._until_bound(len(already) + AFTER)
        await asyncio.to_thread(alone.stop)
        return min(at for name, at in self.bound.items() if name not in already) - began

    async def _come(self, name: str) -> None:
        """Create a pod every few milliseconds, until cancelled."""
        for number in itertools.count():
            await self._api.create(_pod(name, number))
            await asyncio.sleep(BETWEEN_S)

    async def _until_bound(self, pods: int) -> None:
        async def bound() -> bool:
            return len(self.bound) >= pods

        await self._api.until(bound, f"{pods} pods are bound", BOUND_S)

    async def _bound_by(self, identity: str) -> set[str]:
        """The pods of this turn that a scheduler has bound, as its events say."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self._api.namespace}/events"
        found: set[str] = set()

        async def told() -> bool:
            for event in await self._api.list(path, fieldSelector="reason=Scheduled"):
                name = event["regarding"]["name"]
                if event.get("reportingInstance") == identity and name.startswith(f"turn-{self._turns}-"):
                    found.add(name)
            return bool(found & self.bound.keys())

        await self._api.until(told, f"{identity} says what it has bound", BOUND_S)
        return found & self.bound.keys()

    async def _holder(self) -> str:
        return (await self._api.get(self._lease))["spec"].get("holderIdentity") or ""

    async def _next(self, before: str) -> str:
        """The holder of the Lease after this one."""
        found = ""

        async def taken() -> bool:
            nonlocal found
            found = await self._holder()
            return found not in ("", before)

        await self._api.until(taken, f"another one than {before} leads", READY_S)
        return found

    async def _leader(self) -> Gangline:
        leading: list[Gangline] = []

        async def known() -> bool:
            for each in self._replicas:
                if LEADS.search(await asyncio.to_thread(each.metrics)):
                    leading.append(each)
            return bool(leading)

        await self._api.until(known, "one replica leads", READY_S)
        return leading[0]


def _pod(name: str, number: int) -> Manifest:
    """A pod on its own with one GPU."""
    return gpu_pod(f"{name}-{number}", gpus=1, scheduler_name=PROFILE)


async def run(
    nodes: int, pods: int, signals: Sequence[signal.Signals], restarts: int, lease: int, folder: Path
) -> tuple[list[float], list[float]]:
    """All turns, in this order, and then the restarts."""
    with ControlPlane(folder / "plane", Options(kwok=False)) as plane:
        async with isolated(plane) as api:
            await install(api)
            await install_foreign(api)
            await fabric.build(
                api, Fabric(nodes=nodes, gpus=8, leaves=max(1, nodes // 40), spines=max(1, nodes // 320))
            )
            config = configuration(api.namespace)
            retry, renew = TIMES[lease]
            config["leaderElection"] = election(api, ELECTION, lease, retry, renew)
            replicas = [
                Gangline(plane.kubeconfig, folder / name, config, leader_elect=True, start_s=READY_S)
                for name in ("one", "two")
            ]
            alone = Gangline(plane.kubeconfig, folder / "alone", config, start_s=READY_S)
            pair = Pair(api, replicas)
            following = asyncio.create_task(pair.follow())
            try:
                turns = await _turns(pair, replicas, pods, signals)
                again = []
                for _ in range(restarts):
                    again.append(await pair.restart(alone))
                    print(f"started: {again[-1]:.3f} s", file=sys.stderr)
                return turns, again
            finally:
                following.cancel()
                for replica in (*replicas, alone):
                    replica.stop()


async def _turns(pair: Pair, replicas: Sequence[Gangline], pods: int, signals: Sequence[signal.Signals]) -> list[float]:
    """Fill the cluster, and let one leader after the other end; in the end no process runs."""
    for replica in replicas:
        await asyncio.to_thread(replica.start)
    await pair.fill(pods)
    found = []
    for number in signals:
        found.append(await pair.turn(number))
        print(f"{number.name}: {found[-1]:.3f} s", file=sys.stderr)
    for replica in replicas:
        await asyncio.to_thread(replica.stop)
    return found


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--pods", default=5000, show_default=True)
@click.option("--stops", default=50, show_default=True)
@click.option("--kills", default=10, show_default=True)
@click.option("--restarts", default=10, show_default=True)
@click.option("--lease", type=click.Choice([str(seconds) for seconds in TIMES]), default="6", show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(nodes: int, pods: int, stops: int, kills: int, restarts: int, lease: str, seed: int) -> None:
    """Measure and print."""
    signals = [signal.SIGTERM] * stops + [signal.SIGKILL] * kills
    random.Random(seed).shuffle(signals)
    with tempfile.TemporaryDirectory() as folder:
        turns, again = asyncio.run(run(nodes, pods, signals, restarts, int(lease), Path(folder)))
    table = Table("", "turns", "p50 s", "p90 s", "p99 s", "max s", box=None)
    rows = {"told to stop": signal.SIGTERM, "killed": signal.SIGKILL}
    found = {
        title: [seconds for each, seconds in zip(signals, turns, strict=True) if each is number]
        for title, number in rows.items()
    }
    for title, some in {**found, "started anew": again}.items():
        times = sorted(some)
        if times:
            shown = (times[min(len(times) - 1, int(q * len(times)))] for q in (0.5, 0.9, 0.99, 1.0))
            table.add_row(title, str(len(times)), *(f"{seconds:.2f}" for seconds in shown))
    Console(width=100).print(f"{nodes} nodes, {pods} pods, a lease of {lease} s, seed {seed}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
