"""Choosing devices: filter, score and choose for one GpuClaim over many nodes of 8 GPUs, without an API server.

    python benchmarks/devices.py [--nodes 5000] [--cycles 1000]

Half of the nodes' devices are taken at random. Every cycle places its pod, so that the next one finds a row changed.
"known want" is a claim like one before; "new want" is the first of its kind, so nothing that is kept helps.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gangline import model
from gangline.cache import Cache
from gangline.metrics import Metrics
from gangline.registry import Catalog, compile_profile
from gangline.runtime import FrameworkHandle, Runtime
from gangline.testing import FakeHandle, make_node, make_pod
from gangline.wire import (
    ALLOCATED,
    CLAIM,
    ClaimDevices,
    ClaimTopology,
    GpuClaim,
    GpuClaimSpec,
    GpuNodeStatus,
    GpuNodeStatusSpec,
    GpuNodeStatusStatus,
)
from gangline_plugins.gpu.claim import GpuClaim as GpuClaimPlugin
from gangline_plugins.gpu.claim import GpuClaimArgs
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.named_hardware import devices
from gangline_plugins.gpu.nvlink_topology import NVLinkTopology

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
        cache.upsert_node(make_node(name, gpus=8))
        kind = ("hgx-h100", "dgx-a100", "pcie-bridged-8")[i * 3 // nodes]
        status = GpuNodeStatusStatus(total=8, devices=devices(kind))
        meta = model.ObjectMeta(name=name)
        cache.store("gpunodestatuses").upsert(GpuNodeStatus(meta, GpuNodeStatusSpec(name), status))
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


def measure(nodes: int, cycles: int, want: Callable[[int], GpuClaimSpec], shared: bool) -> list[float]:
    """Seconds of filter, score and choice of node and devices, for each cycle."""
    cache = cluster(nodes, shared)
    runtime = runtime_for(cache)
    table = device_table(cache)
    times = []
    gc.collect()
    gc.freeze()
    for number in range(cycles):
        claim = GpuClaim(model.ObjectMeta(name=f"claim-{number}", namespace="default"), want(number))
        cache.store("gpuclaims").upsert(claim)
        pod = cache.record(make_pod(f"pod-{number}", annotations={CLAIM: f"claim-{number}"}))
        start = time.perf_counter()
        filtered = runtime.evaluator.filter(pod)
        row = runtime.evaluator.choose(filtered)
        chosen = table.choose(table.wants.of(pod), row)  # type: ignore[arg-type]  # a valid claim is a want
        times.append(time.perf_counter() - start)
        assert chosen is not None
        cache.assume(pod, row)
        assert table.allocation(pod.uid) == chosen
    return times[min(20, cycles // 2) :]


def exclusive(count: int) -> Callable[[int], GpuClaimSpec]:
    """Claims for whole devices, all alike."""
    spec = GpuClaimSpec(ClaimDevices(count), topology=ClaimTopology("Preferred", 400))
    return lambda number: spec


def fraction(number: int) -> GpuClaimSpec:
    """A quarter of a device."""
    return GpuClaimSpec(ClaimDevices(1, exclusivity="Shared", fraction=0.25))


def different(number: int) -> GpuClaimSpec:
    """Claims of which each differs from all others."""
    return GpuClaimSpec(ClaimDevices(1 + number % 4), topology=ClaimTopology("Preferred", 1 + number))


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--cycles", default=1000, show_default=True)
def main(nodes: int, cycles: int) -> None:
    """Measure and print."""
    table = Table("claim", "mean ms", "median ms", "p99 ms", box=None)
    for name, want, shared, number in (
        ("1 GPU, known want", exclusive(1), False, cycles),
        ("2 GPUs, known want", exclusive(2), False, cycles),
        ("4 GPUs, known want", exclusive(4), False, cycles),
        ("a quarter, known want", fraction, True, cycles),
        ("1-4 GPUs, new want each", different, False, cycles // 5),
    ):
        times = sorted(measure(nodes, number, want, shared))
        table.add_row(
            name,
            f"{sum(times) / len(times) * 1e3:.3f}",
            f"{times[len(times) // 2] * 1e3:.3f}",
            f"{times[int(len(times) * 0.99)] * 1e3:.3f}",
        )
    console = Console(width=100)
    console.print(f"filter, score and choose over {nodes} nodes of 8 GPUs")
    console.print(table)


if __name__ == "__main__":
    main()
