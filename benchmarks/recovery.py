"""How long gangs take to be whole again after losses, on a real API server with nodes played by KWOK.

    python benchmarks/recovery.py [--nodes 1000] [--losses 200] [--fill 0.8] [--restart 0.25] [--seed 1]

Gangs of 2 to 8 pods with a node each, which require one leaf of 8 nodes, fill part of the cluster; part of the gangs
restart as a whole when they lose a member. Then, one loss after the other: a gang is chosen at random, and 1 to all of
its nodes are cut off, are deleted, or get an ill GPU at once. The clock runs from the API server's answer to the last
of these writes until the watch shows the whole gang bound again to other nodes. ReplicaSets make pods anew. The grace
before a node counts as lost is 0 here, and comes on top in use.
"""

from __future__ import annotations

import asyncio
import enum
import random
import sys
import tempfile
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from gangline_e2e import gangs, node_losses
from gangline_e2e.api import Api, connect
from gangline_e2e.day import fabric
from gangline_e2e.day.fabric import Fabric
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gpu_crds import NODE_STATUSES, install
from gangline_e2e.gpu_fleet import configuration
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.node_losses import Members
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest

LEAF = 8
REQUIRED = {"gangline.dev/topology-required": "leaf"}
RESTART = {"gangline.dev/recovery": "restart"}
LEASES = "kube-system"
READY_S = 180.0
SLOW_S = 2.0
"""After a recovery that takes longer, the events about the gang are printed."""
OPTIONS = Options(controller_manager=True, controller_manager_args=("--concurrent-replicaset-syncs=16",))


class Fault(enum.StrEnum):
    """How a node is lost."""

    NOT_READY = "node not ready"
    DELETED = "node deleted"
    ILL = "GPU unhealthy"


class Way(enum.StrEnum):
    """How a gang has become whole again."""

    BESIDE = "beside the others"
    MOVED = "moved as a whole"
    RESTARTED = "restarted"
    NO_ROOM = "told that there is no room"
    """The scheduler found no room for the gang, so the lost nodes came back."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The outcome of one loss."""

    seconds: float
    lost: int
    fault: Fault
    way: Way


class Losing:
    """Gangs on a cluster that loses nodes."""

    def __init__(self, api: Api, members: Members, chance: random.Random, numbers: Fabric) -> None:
        self._api = api
        self._members = members
        self._numbers = {numbers.name(number): number for number in range(numbers.nodes)}
        self._fabric = numbers
        self._chance = chance
        self._sizes: dict[str, int] = {}
        self._restarting: set[str] = set()

    async def fill(self, nodes: int, restart: float) -> None:
        """Create gangs for so many nodes; a part of the gangs restarts as a whole."""
        left = nodes
        while left >= 2:
            size = min(left, self._chance.randint(2, LEAF))
            name = f"gang-{len(self._sizes)}"
            self._sizes[name] = size
            if self._chance.random() < restart:
                self._restarting.add(name)
            left -= size
        for name, size in self._sizes.items():
            notes = REQUIRED | (RESTART if name in self._restarting else {})
            await self._api.create_many(node_losses.replicated(name, size, gangs.PROFILE, notes))
        await asyncio.gather(*(self._members.whole(name, size, (), 300) for name, size in self._sizes.items()))

    async def lose(self) -> Recovered:
        """One loss; afterwards all nodes are well again and no pod is being deleted."""
        name = self._chance.choice(sorted(self._sizes))
        size, before = self._sizes[name], {member.uid: member.node for member in self._members.of(name)}
        lost = self._chance.sample(sorted(before.values()), self._chance.randint(1, size))
        fault = self._chance.choice(list(Fault))
        told = await self._notes(before)
        gone = await self._break(fault, lost)
        start = time.monotonic()
        has_room = await self._recovers(name, lost, before, told)
        seconds = time.monotonic() - start
        stayed = len(before.keys() & {member.uid for member in self._members.of(name)})
        way = Way.NO_ROOM
        if has_room:
            moved = Way.MOVED if stayed < size - len(lost) else Way.BESIDE
            way = Way.RESTARTED if name in self._restarting and len(lost) < size else moved
        if seconds > SLOW_S:
            await self._explain(name)
        await self._mend(fault, lost, gone)
        await self._members.whole(name, size)
        await self._settled(lost)
        return Recovered(seconds, len(lost), fault, way)

    async def _break(self, fault: Fault, nodes: Sequence[str]) -> Sequence[Manifest]:
        """Nodes are lost; returns those that are gone."""
        if fault is Fault.DELETED:
            return await node_losses.delete(self._api, nodes)
        if fault is Fault.NOT_READY:
            await node_losses.cut_off(self._api, nodes)
        else:
            await self._report(nodes, "Unhealthy")
        return ()

    async def _mend(self, fault: Fault, nodes: Sequence[str], gone: Sequence[Manifest]) -> None:
        if fault is Fault.DELETED:
            await self._api.create_many(gone)
        elif fault is Fault.NOT_READY:
            await node_losses.heal(self._api, nodes)
        else:
            await self._report(nodes, "Healthy")

    async def _report(self, nodes: Sequence[str], health: str) -> None:
        """Report the health of the first GPU of these nodes, as their agents do."""
        reports = {node: self._fabric.report(self._numbers[node]) for node in nodes}
        for report in reports.values():
            report["status"]["devices"][0]["health"] = health
            report["status"]["healthy"] -= health != "Healthy"
        merges = (self._api.merge(f"{NODE_STATUSES}/{node}/status", report) for node, report in reports.items())
        await asyncio.gather(*merges)

    async def _recovers(self, gang: str, lost: Sequence[str], members: Container[str], told: set[str]) -> bool:
        """Wait until a gang is whole again, or until new events say that it has no room; False if it has none."""
        whole = asyncio.create_task(self._is_whole(gang, lost, members))
        while not whole.done():
            await asyncio.wait((whole,), timeout=1.0)
            if not whole.done() and await self._notes(members) - told:
                whole.cancel()
                return False
        await whole
        return True

    async def _is_whole(self, gang: str, lost: Sequence[str], before: Container[str]) -> None:
        """Wait until a gang is whole, and consists of new pods alone if it restarts."""
        await self._members.whole(gang, self._sizes[gang], lost, 120)
        while gang in self._restarting and any(member.uid in before for member in self._members.of(gang)):
            await asyncio.sleep(0.01)
            await self._members.whole(gang, self._sizes[gang], lost, 120)

    async def _explain(self, gang: str) -> None:
        """Print the events about the pods of a gang, and about the gang."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self._api.namespace}/events"
        found = [each for each in await self._api.list(path) if (each["regarding"].get("name") or "").startswith(gang)]
        for each in sorted(found, key=lambda each: each["eventTime"] or "")[-4 * LEAF :]:
            about = each["regarding"]["name"]
            print(f"  {each['eventTime']} {about} {each['reason']}: {each.get('note')}", file=sys.stderr)

    async def _notes(self, members: Container[str]) -> set[str]:
        """The events that say to one of these pods that there is no room, each time that it was said."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self._api.namespace}/events"
        found = await self._api.list(path, fieldSelector="reason=GangRecoveryWaits")
        return {each["metadata"]["resourceVersion"] for each in found if each["regarding"]["uid"] in members}

    async def _settled(self, nodes: Sequence[str]) -> None:
        """Take the pods away that nobody ends any more, as kube-controller-manager does for deleted nodes."""

        async def done() -> bool:
            pods = await self._api.list(self._api.pods)
            ending = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]
            await self._api.delete_many(f"{self._api.pods}/{name}" for name in ending)
            return not ending

        await self._api.until(done, f"all is quiet after the loss of {nodes}", 60)


def profile() -> Manifest:
    """The packaged profile for GPUs, without a grace."""
    config = configuration(LEASES)
    config["profiles"][0]["pluginConfig"].append({"name": "Recovery", "args": {"graceSeconds": 0}})
    return config


async def run(nodes: int, losses: int, fill: float, restart: float, seed: int, folder: Path) -> list[Recovered]:
    """All losses."""
    chance = random.Random(seed)
    leaves = max(1, nodes // LEAF)
    numbers = Fabric(nodes=leaves * LEAF, gpus=8, leaves=leaves, spines=max(1, leaves // 25))
    with ControlPlane(folder / "plane", OPTIONS) as plane:
        async with connect(plane.kubeconfig) as api:
            await install(api)
            await install_foreign(api)
            await fabric.build(api, numbers)
            with Gangline(plane.kubeconfig, folder / "gangline", profile(), start_s=READY_S):
                async with node_losses.following(api) as members:
                    losing = Losing(api, members, chance, numbers)
                    await losing.fill(int(nodes * fill), restart)
                    found = []
                    for number in range(losses):
                        found.append(await losing.lose())
                        print(f"{number + 1}: {found[-1]}", file=sys.stderr)
                    return found


@click.command()
@click.option("--nodes", default=1000, show_default=True)
@click.option("--losses", default=200, show_default=True)
@click.option("--fill", default=0.8, show_default=True, help="The fraction of the nodes that gangs take.")
@click.option("--restart", default=0.25, show_default=True, help="The fraction of the gangs that restart as a whole.")
@click.option("--seed", default=1, show_default=True)
def main(nodes: int, losses: int, fill: float, restart: float, seed: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(run(nodes, losses, fill, restart, seed, Path(folder)))
    table = Table("", "losses", "p50 s", "p90 s", "p99 s", "max s", box=None)
    for title, some in kinds(found).items():
        if some:
            times = sorted(each.seconds for each in some)
            table.add_row(title, str(len(times)), *(f"{_quantile(times, q):.2f}" for q in (0.5, 0.9, 0.99, 1.0)))
    Console(width=100).print(
        f"{nodes} nodes, {fill:g} full, {losses} losses, seed {seed}; a grace of 0 s, which comes on top in use"
    )
    Console(width=100).print(table)


def kinds(found: Sequence[Recovered]) -> dict[str, Sequence[Recovered]]:
    """The losses in groups, each under its title."""
    placed = [each for each in found if each.way is not Way.NO_ROOM]
    beside = [each for each in placed if each.way is Way.BESIDE]
    counts = [(f"  {count} lost", [each for each in beside if each.lost == count]) for count in range(1, LEAF + 1)]
    ways = [(str(way), [each for each in placed if each.way is way]) for way in (Way.MOVED, Way.RESTARTED)]
    faults = [(str(fault), [each for each in placed if each.fault is fault]) for fault in Fault]
    without = [each for each in found if each.way is Way.NO_ROOM]
    return dict(
        [
            ("all that had room", placed),
            (str(Way.BESIDE), beside),
            *counts,
            *ways,
            *faults,
            (str(Way.NO_ROOM), without),
        ]
    )


def _quantile(times: Sequence[float], q: float) -> float:
    return times[min(len(times) - 1, int(q * len(times)))]


if __name__ == "__main__":
    main()
