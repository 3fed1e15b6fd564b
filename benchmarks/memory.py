"""Whether memory stays flat while millions of pods come and go: six hours of a cluster in virtual time.

    python benchmarks/memory.py [--pods 2000000] [--hours 6] [--rests 20] [--warm-up 200000] [--bound 8] [--seed 1]
                                [--alone]

Pods alone, gangs in eight dialects, pods with GpuClaims and ResourceClaims, and pods that find no node come, are bound,
run, end and are deleted, on nodes of which some come and go; no name is used twice. One scheduler with the GPU profile
leads, another one stands by unless `--alone` is given, and both follow the same API server, all in this process, whose
garbage collector works as `gangline run` has set it. Now and then all pods go; then
the process's memory is read, and every collection that can be reached from either scheduler is counted.

Exits with 1 if memory has grown by more MiB per million pods than the bound after the warm-up, or if a collection has
grown all the time.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from churn.cluster import Churn, Pace
from churn.measuring import Measured, measure
from churn.reach import grown
from gangline.process.memory import collect_rarely
from gangline.simulate import run

LEAST = 1000
"""A collection counts as growing if it gets at least one entry for each so many pods."""


async def rests(churn: Churn, pods: int, number: int) -> AsyncIterator[Measured]:
    """So many pods in so many parts, with a look after each."""
    async with AsyncExitStack() as stack:
        await churn.start(stack)
        for _ in range(number):
            await churn.play(pods // number)
            yield measure(churn)


def slope(found: Sequence[Measured]) -> float:
    """MiB by which memory grows with a million pods."""
    pods = np.array([each.pods for each in found]) / 1e6
    return float(np.polyfit(pods, [each.rss_mib for each in found], 1)[0]) if len(found) > 1 else 0.0


def growing(found: Sequence[Measured]) -> dict[str, tuple[int, ...]]:
    """The collections that were larger in the middle than at the beginning, and larger still in the end."""
    if len(found) < 3:
        return {}
    looks = found[0], found[len(found) // 2], found[-1]
    between = min(looks[1].pods - looks[0].pods, looks[2].pods - looks[1].pods)
    return grown([each.sizes for each in looks], max(2, between // LEAST))


async def play(churn: Churn, pods: int, number: int) -> list[Measured]:
    """Play the whole benchmark, and print its progress."""
    found = []
    began = time.perf_counter()
    async for each in rests(churn, pods, number):
        found.append(each)
        seconds = time.perf_counter() - began
        reached = ", ".join(f"{name} {kib} KiB" for name, kib in each.kib.items())
        print(f"{each.pods} pods, {seconds:.0f} s: {each.rss_mib:.0f} MiB; {reached}", file=sys.stderr, flush=True)
    return found


@click.command()
@click.option("--pods", default=2_000_000, show_default=True)
@click.option("--hours", default=6.0, show_default=True, help="Hours of virtual time.")
@click.option("--rests", "number", default=20, show_default=True)
@click.option(
    "--warm-up",
    default=200_000,
    show_default=True,
    help="Pods before the judgement begins: by then all bounded collections are full.",
)
@click.option("--bound", default=8.0, show_default=True, help="The most MiB by which memory may grow per million pods.")
@click.option("--seed", default=1, show_default=True)
@click.option("--alone", is_flag=True, help="Run without a scheduler that stands by, which takes about half the time.")
def main(pods: int, hours: float, number: int, warm_up: int, bound: float, seed: int, alone: bool) -> None:
    """Measure, print and judge."""
    logging.disable(logging.ERROR)
    collect_rarely()
    churn = Churn(seed, Pace(pods=pods / (hours * 3600)), with_standby=not alone)
    began = time.process_time()
    found = run(play(churn, pods, number), churn.clock)
    spent = time.process_time() - began
    table = Table("pods", "MiB", *(f"{name} KiB" for name in churn.schedulers), box=None)
    for each in found:
        table.add_row(str(each.pods), f"{each.rss_mib:.0f}", *map(str, each.kib.values()))
    warm = [each for each in found if each.pods > warm_up]
    grows, collections = slope(warm), growing(warm)
    console = Console(width=120)
    console.print(table)
    did = ", ".join(f"{count} {what}" for what, count in churn.done.items())
    console.print(
        f"{did}; {churn.clock.monotonic() / 3600:.1f} virtual hours, {1000 * spent / pods:.2f} ms of CPU per pod"
    )
    console.print(f"after {warm_up} pods memory grows by {grows:.1f} MiB per million pods")
    for name, sizes in collections.items():
        console.print(f"grows: {name} {sizes}")
    if grows > bound or collections:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
