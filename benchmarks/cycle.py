"""Scheduling cycles per second, without an API server: filter, score, choose, reserve, permit, assume.

    python benchmarks/cycle.py [--nodes 1000 --nodes 5000 --nodes 20000] [--cycles 2000]

Three workloads: pods of one class that is known already; ten known classes in turn; and pods of which each is the first
of its class. Columns are milliseconds per cycle. The profile is the default one with every installed default plugin.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from gangline import config, model
from gangline.deciding.scheduling import Decision, decide
from gangline.process.memory import keep_memory, settle_memory
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache

DEFAULT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def cluster(nodes: int) -> Cache:
    """Nodes of 8 GPUs in racks of 16 and zones of 512, a tenth of them tainted."""
    cache = Cache()
    for i in range(nodes):
        labels = {
            "kubernetes.io/hostname": f"node-{i:05}",
            "topology.kubernetes.io/zone": f"zone-{i // 512}",
            "rack": f"rack-{i // 16}",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3" if i % 4 else "NVIDIA-A100-SXM4-80GB",
        }
        taints = [model.Taint(key="nvidia.com/gpu", effect="NoSchedule")] if i % 10 == 0 else []
        resources: model.Resources = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"}
        cache.upsert_node(
            model.Node(
                metadata=model.ObjectMeta(name=f"node-{i:05}", labels=labels),
                spec=model.NodeSpec(taints=taints),
                status=model.NodeStatus(allocatable=resources),
            )
        )
    return cache


def pod(number: int, cpu_milli: int) -> model.Pod:
    """A pod of one GPU; cpu_milli makes the class."""
    requests: model.Resources = {"cpu": f"{cpu_milli}m", "memory": "4Gi", "nvidia.com/gpu": 1}
    container = model.Container(name="main", image="train:1", resources=model.ResourceRequirements(requests=requests))
    return model.Pod(
        metadata=model.ObjectMeta(name=f"pod-{number}", namespace="default", uid=f"uid-{number}"),
        spec=model.PodSpec(containers=[container]),
    )


def runtime_for(cache: Cache) -> Runtime:
    """The default profile on a cluster."""
    runtimes = judging_runtimes(config.load(DEFAULT, "default"), cache, ties=random.Random(1))
    return runtimes["default-scheduler"]


def measure(nodes: int, cycles: int, classes: int | None) -> list[float]:
    """Seconds of each cycle; `classes` live classes in turn, None for a new one each time."""
    cache = cluster(nodes)
    runtime = runtime_for(cache)
    keep = [cache.record(pod(-1 - c, 1000 + c)) for c in range(classes or 0)]
    for record in keep:  # each class is known before the clock runs
        runtime.evaluator.choose(runtime.evaluator.filter(record))
    times = []
    settle_memory()
    for number in range(min(cycles, nodes * 8)):
        record = cache.record(pod(number, 1000 + number % classes if classes else 1000 + number))
        unit = Unit([record], added=0.0)
        start = time.perf_counter()
        outcome = decide(unit, runtime, cache, {})
        times.append(time.perf_counter() - start)
        assert isinstance(outcome, Decision)
    return times


@click.command()
@click.option("--nodes", multiple=True, type=int, default=(1000, 5000, 20000), show_default=True)
@click.option("--cycles", default=2000, show_default=True)
def main(nodes: Sequence[int], cycles: int) -> None:
    """Measure and print."""
    keep_memory()  # as `gangline run` does
    table = Table("nodes", "pods", "mean ms", "median ms", "p99 ms", "cycles/s", box=None)
    for size in nodes:
        for name, classes in (("one known class", 1), ("ten known classes", 10), ("new class each", None)):
            times = sorted(measure(size, cycles if classes else cycles // 4, classes))
            mean = statistics.fmean(times)
            table.add_row(
                str(size),
                name,
                f"{mean * 1e3:.3f}",
                f"{times[len(times) // 2] * 1e3:.3f}",
                f"{times[int(len(times) * 0.99)] * 1e3:.3f}",
                f"{1 / mean:,.0f}",
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
