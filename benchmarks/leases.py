"""Locking devices on a real API server: pods and devices per second for both granularities of DeviceLease.

    python benchmarks/leases.py [--pods 400] [--devices 1 --devices 8] [--concurrency 64] [--runs 3]

Needs the control plane (`make control-plane`). Each pod takes its devices on nodes of 8 GPUs, as many pods at a time as
there are binding cycles in the scheduler; then all are released. A granularity starts without leases. etcd, the API
server and this client share the machine. Medians of the runs.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.table import Table

from gangline.clock import SystemClock
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.kube.resources import LEASES
from gangline.state.cache import Cache
from gangline_e2e.harness import ControlPlane, Options
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.leases.holds import HoldPart, parts_of
from gangline_plugins.gpu.leases.locks import Locks

NAMESPACE = "kube-system"
GPUS = 8  # GPUs of each node


@dataclass(frozen=True, slots=True)
class Run:
    """Pods per second that got all their devices, and that gave them back."""

    locked: float
    released: float


def pods_of(number: int, devices: int, whole_node: bool) -> list[list[HoldPart]]:
    """What each pod needs; nodes are filled one after the other."""
    made = []
    for pod in range(number):
        node, first = divmod(pod * devices, GPUS)
        ids = tuple(range(first, first + devices))
        allocation = Allocation(0, ids, ("",) * devices)
        name = f"node-{node:05}"
        made.append(parts_of(allocation, name, f"uid-{pod}", f"default/pod-{pod}", f"bench.{pod}", whole_node))
    return made


async def measure(locks: Locks, pods: Sequence[Sequence[HoldPart]], concurrency: int) -> Run:
    """Lock the devices of all pods, then release them."""

    async def lock(parts: Sequence[HoldPart]) -> None:
        if await locks.acquire(parts, [0] * GPUS) is not None:
            raise click.ClickException("a device was taken: leases of an earlier run are there")

    locked = await rate(lock, pods, concurrency)
    return Run(locked, await rate(locks.release, pods, concurrency))


async def rate(
    work: Callable[[Sequence[HoldPart]], Awaitable[None]], pods: Sequence[Sequence[HoldPart]], concurrency: int
) -> float:
    """Pods per second."""
    waiting = iter(pods)

    async def worker() -> None:
        for parts in waiting:
            await work(parts)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
    return len(pods) / (time.perf_counter() - began)


async def compare(
    kubeconfig: Path, number: int, sizes: Sequence[int], concurrency: int, runs: int
) -> dict[tuple[int, str], list[Run]]:
    """All combinations, by devices per pod and granularity; the first run only warms up."""
    found: dict[tuple[int, str], list[Run]] = {}
    async with HttpClient(auth.load(str(kubeconfig)), connections=concurrency) as client:
        for run, devices, granularity in itertools.product(range(runs + 1), sizes, ("device", "node")):
            none_seen = Cache().store(LEASES)
            locks = Locks(
                client, NAMESPACE, SystemClock(), none_seen, lambda uid, node: ()
            )  # all leases belong to this scheduler
            result = await measure(locks, pods_of(number, devices, granularity == "node"), concurrency)
            if run:
                found.setdefault((devices, granularity), []).append(result)
    return found


@click.command()
@click.option("--pods", default=400, show_default=True)
@click.option("--devices", "sizes", type=click.Choice(["1", "2", "4", "8"]), multiple=True, default=("1", "8"))
@click.option("--concurrency", default=64, show_default=True)
@click.option("--runs", default=3, show_default=True)
def main(pods: int, sizes: tuple[str, ...], concurrency: int, runs: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), Options(kwok=False)) as plane:
        found = uvloop.run(compare(plane.kubeconfig, pods, [int(size) for size in sizes], concurrency, runs))
    table = Table("devices per pod", "granularity", "pods/s locked", "devices/s locked", "pods/s released", box=None)
    for (devices, granularity), results in sorted(found.items()):
        locked = statistics.median(result.locked for result in results)
        released = statistics.median(result.released for result in results)
        table.add_row(str(devices), granularity, f"{locked:.0f}", f"{locked * devices:.0f}", f"{released:.0f}")
    console = Console(width=100)
    console.print(f"{pods} pods, {concurrency} at a time, {runs} run(s), medians")
    console.print(table)


if __name__ == "__main__":
    main()
