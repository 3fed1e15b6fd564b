"""Filter and score of DynamicResources for single pods with a ResourceClaim, without an API server.

    python benchmarks/claimed_pods.py [--nodes 5000] [--cycles 200] [--order best] [--order upstream]

The plugin is the only one of its profile, so the time is that of the plugin, from the pod to the node. Half of the
devices are taken at random. Before each cycle one device is taken or given back, so that a row has changed. A known
spec is that of a claim like one before; a new spec differs from all before. Times are CPU time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from itertools import count
from statistics import fmean, median

import click
from rich.console import Console
from rich.table import Table

import claimed_gangs
from claims import DRIVER, PER_NODE, SAME_ROOT, claim, gpus, larger_than, taken
from gangline import model
from gangline.dra.allocator import Order
from gangline.kube.resources import RESOURCE_CLAIMS
from gangline.process.memory import keep_memory, settle_memory
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.testing import FakeHandle, make_pod, make_runtime
from gangline_plugins.dynamic_resources.arguments import DynamicResourcesArgs
from gangline_plugins.dynamic_resources.plugin import DynamicResources

NUMBERS = count(1)
"""A number for each object, which is also its version."""
FIRST_VERSION = 10**6
SKIPPED = 3
"""The first cycles of each row make columns, and are not counted."""
HOPPER = f'device.attributes["{DRIVER}"].architecture == "Hopper"'
LATER = f'device.attributes["{DRIVER}"].index >= 4'

Spec = Callable[[int], model.ResourceClaim]
"""The claim with a number: equal numbers mean equal specs."""


def one(number: int) -> model.ResourceClaim:
    """One device."""
    return claim(gpus(1, larger_than(number)))


def pair(number: int) -> model.ResourceClaim:
    """Two devices of one PCIe root."""
    return claim(gpus(2, larger_than(number)), constraints=SAME_ROOT)


def alternatives(number: int) -> model.ResourceClaim:
    """Four devices of one kind, or two, or one."""
    wanted = (("four", gpus(4, larger_than(number), HOPPER)), ("two", gpus(2, larger_than(number))), ("one", gpus(1)))
    return claim({"firstAvailable": [{"name": name, **request} for name, request in wanted]})


def overlapping(number: int) -> model.ResourceClaim:
    """Two requests, whose candidates overlap, for devices of one PCIe root."""
    return claim(gpus(1, larger_than(number)), gpus(1, LATER), constraints=SAME_ROOT)


def distinct(number: int) -> model.ResourceClaim:
    """Two devices of different PCIe roots."""
    root = {"distinctAttribute": "resource.kubernetes.io/pcieRoot"}
    return claim(gpus(1, larger_than(number)), gpus(1, larger_than(number)), constraints=(root,))


def all_of_half(number: int) -> model.ResourceClaim:
    """All devices of a kind."""
    return claim({**gpus(0, larger_than(number), LATER), "allocationMode": "All"})


def searched(number: int) -> model.ResourceClaim:
    """Constraints about different requests, which counting cannot answer."""
    rest = {"matchAttribute": f"{DRIVER}/productName", "requests": ["r1"]}
    return claim(gpus(1, larger_than(number)), gpus(2, larger_than(number)), constraints=(*SAME_ROOT, rest))


CASES: tuple[tuple[str, Spec], ...] = (
    ("1 GPU", one),
    ("2 GPUs of one root", pair),
    ("4, 2 or 1 GPUs", alternatives),
    ("1 and 1 of half of the GPUs, of one root", overlapping),
    ("2 GPUs of different roots", distinct),
    ("all of half of the GPUs", all_of_half),
    ("constraints that are searched", searched),
)


def write(cache: Cache, name: str, spec: model.ResourceClaimSpec, status: model.ResourceClaimStatus | None) -> None:
    """Show a claim as the watch does."""
    number = FIRST_VERSION + next(NUMBERS)
    metadata = model.ObjectMeta(name, "default", uid=name, resource_version=str(number))
    cache.store(RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, spec, status or model.ResourceClaimStatus()))


def change(cache: Cache, number: int, nodes: int) -> None:
    """Take a device of another node each time; the one of the time before comes free."""
    at = taken(number * 7 % nodes, number % PER_NODE)
    write(cache, "changing", claim(gpus(1)).spec, model.ResourceClaimStatus(allocation=at))


def cycle(cache: Cache, runtime: Runtime, spec: model.ResourceClaimSpec, nodes: int) -> float:
    """Milliseconds in which the plugin finds a node for a pod with a claim."""
    number = next(NUMBERS)
    name = f"pod-{number}"
    change(cache, number, nodes)
    write(cache, name, spec, None)
    pod = cache.record(make_pod(name, resource_claims=[model.PodResourceClaim("gpu", name)]))
    start = time.process_time()
    runtime.evaluator.choose(runtime.evaluator.filter(pod))
    return 1e3 * (time.process_time() - start)


def measured(cache: Cache, runtime: Runtime, spec: Spec, cycles: int, nodes: int, is_new: bool) -> list[float]:
    """Milliseconds of each cycle, ascending."""
    numbers = (next(NUMBERS) if is_new else 0 for _ in range(cycles + SKIPPED))
    gc.collect()
    return sorted([cycle(cache, runtime, spec(number).spec, nodes) for number in numbers][SKIPPED:])


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--cycles", default=200, show_default=True, help="Cycles with a known spec; of new specs a tenth.")
@click.option(
    "--order",
    "orders",
    type=click.Choice(["best", "upstream"]),
    multiple=True,
    default=("best", "upstream"),
    show_default=True,
)
def main(nodes: int, cycles: int, orders: Sequence[Order]) -> None:
    """Measure and print."""
    keep_memory()  # as `gangline run` does
    console = Console(width=110)
    for order in orders:
        cache = claimed_gangs.cluster(nodes)
        args = {"DynamicResources": DynamicResourcesArgs(allocation_order=order)}
        runtime = make_runtime(cache, DynamicResources, handle=FakeHandle(cache), args=args)
        settle_memory()
        table = Table("filter and score", "spec", "mean ms", "median ms", "p99 ms", box=None)
        first = cycle(cache, runtime, claim(gpus(1)).spec, nodes)
        for name, spec in CASES:
            for is_new in (False, True):
                times = measured(cache, runtime, spec, cycles // 10 if is_new else cycles, nodes, is_new)
                figures = fmean(times), median(times), times[int(len(times) * 0.99)]
                table.add_row(name, "new" if is_new else "known", *(f"{figure:.2f}" for figure in figures))
        console.print(f"order {order}: {nodes} nodes of {PER_NODE} devices; the first pod of all: {first:.1f} ms")
        console.print(table)


if __name__ == "__main__":
    main()
