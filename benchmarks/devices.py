"""Choosing devices: filter, score and choose for one GpuClaim over many nodes of 8 GPUs, without an API server.

    python benchmarks/devices.py [--nodes 5000] [--cycles 1000] [--runs 3]

Half of the nodes' devices are taken at random. Every cycle places its pod, so that the next one finds a row changed.
A known want is that of a claim like one before. A new want differs from all before in one or more of count, policy,
bandwidth and selector, so no verdict that is kept helps; only what is tabulated of the hardware does. First tables are
those of a count, policy and mode that no claim had before, which a process meets once.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice, permutations, product, repeat
from statistics import fmean, median

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gangline import model
from gangline.kube.resources import GPU_CLAIMS, GPU_NODE_STATUSES
from gangline.process.memory import settle_memory
from gangline.profile.compiling import compile_profile
from gangline.profile.handle import FrameworkHandle
from gangline.profile.registry import Catalog
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeHandle, make_node, make_pod
from gangline.wire.custom_resources import (
    ALLOCATED,
    CLAIM,
    ClaimDevices,
    ClaimSelector,
    ClaimTopology,
    GpuClaim,
    GpuClaimSpec,
    GpuNodeStatus,
    GpuNodeStatusSpec,
    GpuNodeStatusStatus,
)
from gangline_plugins.gpu.choosing import Mode, Policy
from gangline_plugins.gpu.claim import GpuClaim as GpuClaimPlugin
from gangline_plugins.gpu.claim import GpuClaimArgs
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.named_hardware import devices
from gangline_plugins.gpu.nvlink_topology import NVLinkTopology

BAR = 0.3
"""Milliseconds that one claim may take over 5,000 nodes, on the average."""
LABELS = 10
"""Labels of each node, which halve the nodes in ten ways."""
POINTS = {
    "pre_filter": [("GpuClaim", 1)],
    "filter": [("GpuClaim", 1)],
    "pre_score": [("GpuClaim", 1), ("NVLinkTopology", 1)],
    "score": [("GpuClaim", 1), ("NVLinkTopology", 1)],
    "reserve": [("GpuClaim", 1)],
}


def cluster(nodes: int, shared: bool) -> Cache:
    """Nodes of 8 GPUs of three kinds, with pods that hold random devices."""
    cache, chance = Cache(), random.Random(1)
    for i in range(nodes):
        name = f"node-{i:05}"
        labels = {f"bit-{bit}": str(i >> bit & 1) for bit in range(LABELS)}
        cache.upsert_node(make_node(name, gpus=8, labels=labels))
        kind = ("hgx-h100", "dgx-a100", "pcie-bridged-8")[i * 3 // nodes]
        status = GpuNodeStatusStatus(total=8, devices=devices(kind))
        meta = model.ObjectMeta(name=name)
        cache.store(GPU_NODE_STATUSES).upsert(GpuNodeStatus(meta, GpuNodeStatusSpec(name), status))
        taken = [] if shared else sorted(chance.sample(range(8), chance.randrange(0, 8)))
        if taken:
            pod = make_pod(f"old-{i}", len(taken), node=name, annotations={ALLOCATED: ",".join(map(str, taken))})
            cache.upsert_pod(cache.record(pod))
    return cache


def runtime_for(cache: Cache) -> Runtime:
    """A profile of the two device plugins alone."""
    metrics = Metrics()
    handle: FrameworkHandle = FakeHandle(cache, metrics=metrics)

    def args(name: str, type_: type[msgspec.Struct] | None) -> msgspec.Struct | None:
        return GpuClaimArgs() if type_ is not None else None

    catalog = Catalog({}).with_classes(GpuClaimPlugin, NVLinkTopology)
    return Runtime(compile_profile("gpu", POINTS, catalog, args, handle, metrics), handle, metrics, random.Random(1))


def measure(nodes: int, claims: Iterator[GpuClaimSpec], shared: bool) -> list[float]:
    """Milliseconds of filter, score and choice of node and devices, for each claim."""
    cache = cluster(nodes, shared)
    runtime = runtime_for(cache)
    table = device_table(cache)
    times = []
    settle_memory()
    for number, spec in enumerate(claims):
        claim = GpuClaim(model.ObjectMeta(name=f"claim-{number}", namespace="default"), spec)
        cache.store(GPU_CLAIMS).upsert(claim)
        pod = cache.record(make_pod(f"pod-{number}", annotations={CLAIM: f"claim-{number}"}))
        start = time.perf_counter()
        filtered = runtime.evaluator.filter(pod)
        row = runtime.evaluator.choose(filtered)
        chosen = table.choose(table.wants.of(pod), row)  # type: ignore[arg-type]  # a valid claim is a want
        times.append(1e3 * (time.perf_counter() - start))
        assert chosen is not None
        cache.assume(pod, row)
        assert table.allocation(pod.uid) == chosen
    gc.unfreeze()
    return times


def exclusive(count: int) -> GpuClaimSpec:
    """Whole devices, fast links preferred."""
    return GpuClaimSpec(ClaimDevices(count), topology=ClaimTopology("Preferred", 400))


def fraction() -> GpuClaimSpec:
    """A quarter of a device."""
    return GpuClaimSpec(ClaimDevices(1, exclusivity="Shared", fraction=0.25))


def new_bandwidths(cycles: int) -> Iterator[GpuClaimSpec]:
    """One to four devices; each claim asks for another bandwidth."""
    for number in range(cycles):
        yield GpuClaimSpec(ClaimDevices(1 + number % 4), topology=ClaimTopology("Preferred", 1 + number))


def new_selectors(cycles: int) -> Iterator[GpuClaimSpec]:
    """One to four devices; each claim selects another eighth of the nodes."""
    selected = product(combinations(range(LABELS), 3), product("01", repeat=3))
    for number, (bits, values) in zip(range(cycles), selected, strict=False):
        labels = {f"bit-{bit}": value for bit, value in zip(bits, values, strict=True)}
        yield GpuClaimSpec(ClaimDevices(1 + number % 4), ClaimSelector(labels))


def new_lists(cycles: int) -> Iterator[GpuClaimSpec]:
    """Four devices; each claim prefers others."""
    for _, ids in zip(range(cycles), permutations(range(8), 4), strict=False):
        yield GpuClaimSpec(ClaimDevices(4, policy="preferIds", prefer_ids=list(ids)))


def first_of_all(cycles: int) -> Iterator[GpuClaimSpec]:
    """Each count, policy and mode once."""
    policies: tuple[Policy, ...] = ("contiguous", "spread", "preferIds")
    modes: tuple[Mode, ...] = ("Preferred", "Required", "Ignore")
    for mode, policy, count in islice(product(modes, policies, range(1, 9)), cycles):
        if policy != "spread" or mode != "Required" or count == 1:
            ids = list(range(count)) if policy == "preferIds" else []
            yield GpuClaimSpec(ClaimDevices(count, policy, ids), topology=ClaimTopology(mode))


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table; the first `skip` claims, which fill tables and caches, are not counted."""

    name: str
    claims: Callable[[int], Iterator[GpuClaimSpec]]
    shared: bool = False
    share: int = 1
    """One of so many cycles is run; 1 for all."""
    skip: int = 20
    has_bar: bool = True


CASES = (
    Case("1 GPU, known want", lambda cycles: repeat(exclusive(1), cycles)),
    Case("2 GPUs, known want", lambda cycles: repeat(exclusive(2), cycles)),
    Case("4 GPUs, known want", lambda cycles: repeat(exclusive(4), cycles)),
    Case("a quarter, known want", lambda cycles: repeat(fraction(), cycles), shared=True),
    Case("1-4 GPUs, new bandwidth each", new_bandwidths, share=4),
    Case("1-4 GPUs, new selector each", new_selectors, share=4, skip=80),
    Case("4 GPUs, new list of ids each", new_lists, share=4, has_bar=False),
    Case("first tables of the process", first_of_all, skip=1, has_bar=False),
)


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--cycles", default=1000, show_default=True)
@click.option(
    "--runs", default=3, show_default=True, help="How often all is run; for each claim the shortest time counts."
)
def main(nodes: int, cycles: int, runs: int) -> None:
    """Measure and print."""
    table = Table("claim", "mean ms", "median ms", "p99 ms", f"bar {BAR} ms", box=None)
    for case in CASES:
        measured = [measure(nodes, case.claims(cycles // case.share), case.shared)[case.skip :] for _ in range(runs)]
        times = sorted(map(min, zip(*measured, strict=True)))  # the shortest times, which other processes disturb least
        figures = (fmean(times), median(times), times[int(len(times) * 0.99)])
        verdict = "" if not case.has_bar else "met" if figures[0] < BAR else "missed"
        table.add_row(case.name, *(f"{figure:.3f}" for figure in figures), verdict)
    console = Console(width=100)
    console.print(f"filter, score and choose over {nodes} nodes of 8 GPUs, the shortest of {runs} runs")
    console.print(table)


if __name__ == "__main__":
    main()
