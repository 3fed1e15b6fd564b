"""How long gangs take to be whole again after nodes are lost, on a real API server with nodes played by KWOK.

    python benchmarks/recovery.py [--nodes 1000] [--losses 200] [--fill 0.8] [--seed 1]

Gangs of 2 to 8 pods with a node each, which require one leaf of 8 nodes, fill part of the cluster. Then, one loss after
the other: a gang is chosen at random, and 1 to all of its nodes are cut off or deleted at once. The clock runs from the
API server's answer to the last of these writes until the watch shows the whole gang bound again to other nodes.
ReplicaSets make pods anew. The grace before a node counts as lost is 0 here, and comes on top in use.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import yaml
from rich.console import Console
from rich.table import Table

import gangline_profiles
from gangline_e2e import gangs, node_losses
from gangline_e2e.api import Api, connect
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.node_losses import Members
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest

LEAF = 8
REQUIRED = {"gangline.dev/topology-required": "leaf"}
OPTIONS = Options(controller_manager=True, controller_manager_args=("--concurrent-replicaset-syncs=16",))


@dataclass(frozen=True, slots=True)
class Recovered:
    """What came of one loss."""

    seconds: float
    lost: int
    is_move: bool
    had_room: bool = True
    """Without room anywhere, the scheduler says so, and the nodes come back."""


class Losing:
    """Gangs on a cluster that loses nodes."""

    def __init__(self, api: Api, members: Members, chance: random.Random) -> None:
        self._api = api
        self._members = members
        self._chance = chance
        self._sizes: dict[str, int] = {}

    async def fill(self, nodes: int) -> None:
        """Gangs for so many nodes."""
        left = nodes
        while left >= 2:
            size = min(left, self._chance.randint(2, LEAF))
            self._sizes[f"gang-{len(self._sizes)}"] = size
            left -= size
        for name, size in self._sizes.items():
            await self._api.create_many(node_losses.replicated(name, size, gangs.PROFILE, REQUIRED))
        await asyncio.gather(*(self._members.whole(name, size, (), 300) for name, size in self._sizes.items()))

    async def lose(self) -> Recovered:
        """One loss; afterwards all nodes are well again and no pod is being deleted."""
        name = self._chance.choice(sorted(self._sizes))
        size, before = self._sizes[name], {member.uid: member.node for member in self._members.of(name)}
        lost = self._chance.sample(sorted(before.values()), self._chance.randint(1, size))
        gone: Sequence[Manifest] = ()
        told = await self._notes(before)
        if self._chance.random() < 0.5:
            await node_losses.cut_off(self._api, lost)
        else:
            gone = await node_losses.delete(self._api, lost)
        start = time.monotonic()
        has_room = await self._recovers(name, size, lost, before, told)
        end = time.monotonic()
        stayed = len(before.keys() & {member.uid for member in self._members.of(name)})
        await (self._api.create_many(gone) if gone else node_losses.heal(self._api, lost))
        await self._members.whole(name, size)
        await self._settled(lost)
        return Recovered(end - start, len(lost), stayed < size - len(lost), has_room)

    async def _recovers(
        self, gang: str, size: int, lost: Sequence[str], members: Container[str], told: set[str]
    ) -> bool:
        """Wait until a gang is whole again, or its members are told anew that it has no room; whether it is whole."""
        whole = asyncio.create_task(self._members.whole(gang, size, lost, 120))
        while not whole.done():
            await asyncio.wait((whole,), timeout=1.0)
            if not whole.done() and await self._notes(members) - told:
                whole.cancel()
                return False
        await whole
        return True

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
    config: Manifest = yaml.safe_load(gangline_profiles.read(gangs.PROFILE))
    config["profiles"][0]["pluginConfig"].append({"name": "Recovery", "args": {"graceSeconds": 0}})
    return config


async def run(nodes: int, losses: int, fill: float, seed: int, folder: Path) -> list[Recovered]:
    """All losses."""
    chance = random.Random(seed)
    with ControlPlane(folder / "plane", OPTIONS) as plane:
        async with connect(plane.kubeconfig) as api:
            await install(api)
            await install_foreign(api)
            await api.create_many(gangs.fabric(spines=5, leaves=max(1, nodes // (5 * LEAF)), nodes=LEAF))
            with Gangline(plane.kubeconfig, folder / "gangline", profile()):
                async with node_losses.following(api) as members:
                    losing = Losing(api, members, chance)
                    await losing.fill(int(nodes * fill))
                    found = []
                    for number in range(losses):
                        found.append(await losing.lose())
                        print(f"{number + 1}: {found[-1]}", file=sys.stderr)
                    return found


@click.command()
@click.option("--nodes", default=1000, show_default=True)
@click.option("--losses", default=200, show_default=True)
@click.option("--fill", default=0.8, show_default=True, help="Part of the nodes that gangs take.")
@click.option("--seed", default=1, show_default=True)
def main(nodes: int, losses: int, fill: float, seed: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(run(nodes, losses, fill, seed, Path(folder)))
    table = Table("", "losses", "p50 s", "p90 s", "p99 s", "max s", box=None)
    placed = [each for each in found if each.had_room]
    kinds = {
        "all that had room": placed,
        "beside the others": [each for each in placed if not each.is_move],
        "moved as a whole": [each for each in placed if each.is_move],
        "told that there is no room": [each for each in found if not each.had_room],
    }
    for title, some in kinds.items():
        if some:
            times = sorted(each.seconds for each in some)
            table.add_row(title, str(len(times)), *(f"{_quantile(times, q):.2f}" for q in (0.5, 0.9, 0.99, 1.0)))
    Console(width=100).print(f"{nodes} nodes, {fill:g} full, {losses} losses, seed {seed}")
    Console(width=100).print(table)


def _quantile(times: Sequence[float], q: float) -> float:
    return times[min(len(times) - 1, int(q * len(times)))]


if __name__ == "__main__":
    main()
