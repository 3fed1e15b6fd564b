"""Gang preemption: one decision for a gang that fits nowhere on a cluster full of gangs, without an API server.

    python benchmarks/gang_preemption.py [--nodes 2000] [--gangs 700] [--runs 5]

Nodes of 8 GPUs in spines of 16 leaves of 8 nodes are filled by gangs of whole nodes and of three priorities, in leaves
where that can be; nodes that are left are filled by pods of one GPU. A decision is all that `GangPreemption` does in
one attempt: who has to go, and whether the whole gang then has its place on the real columns. Nobody is evicted.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from gangline import GroupAttempt, NodeView, Status, hookimpl, model, resources, unschedulable
from gangline.deciding.group_decisions import GroupRejection
from gangline.deciding.group_search import decide_group
from gangline.groups import Groups
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.testing import FakeHandle, make_node, make_pod, make_runtime
from gangline_plugins.gang_permit import GangPermit
from gangline_plugins.gang_preemption import GangPreemption
from gangline_plugins.gang_preemption.plugin import EvictionPlan
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.topology_placement import TopologyPlacement

BAR = 1000.0
"""Milliseconds that one decision may take at 2,000 nodes with 700 gangs."""
PER_LEAF, PER_SPINE = 8, 128
SPINE, LEAF = "topology.gangline.dev/spine", "topology.gangline.dev/leaf"
GROUP, REQUIRED = "scheduling.x-k8s.io/pod-group", "gangline.dev/topology-required"


class Deciding(GangPreemption):
    """GangPreemption that only decides: it keeps the plan and the time that it took, and evicts nobody."""

    plan: EvictionPlan | Status
    milliseconds = 0.0

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt, nodes: NodeView) -> Status:
        """See `GangPreemption`."""
        start = time.perf_counter()
        Deciding.plan = self.decide(attempt, nodes)
        Deciding.milliseconds = 1e3 * (time.perf_counter() - start)
        return unschedulable("decided")


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    nodes: int
    level: str = ""
    priority: int = 10
    gpus: int = 8
    """The GPUs of each member."""


CASES = (
    Case("8 nodes, one leaf", 8, "leaf"),
    Case("64 nodes, one spine", 64, "spine"),
    Case("128 nodes, one spine", 128, "spine"),
    Case("256 nodes, anywhere", 256),
    Case("2,048 pods of 1 GPU, anywhere", 256, gpus=1),
    Case("32 nodes, one spine, above the lowest priority", 32, "spine", priority=1),
    Case("129 nodes, one spine: impossible", 129, "spine"),
)


def gang(cache: Cache, name: str, pods: Iterator[model.Pod], size: int) -> list[PodInfo]:
    """The members of a gang of that size; the pods are labelled as such."""
    meta = model.ObjectMeta(name=name, namespace="default", uid=name)
    group = model.PodGroup(metadata=meta, spec=model.PodGroupSpec(min_member=size))
    cache.store(resources.SCHEDULER_PLUGINS_POD_GROUPS).upsert(group)
    return [cache.record(pod) for pod in pods]


def cluster(nodes: int, gangs: int) -> Cache:
    """A full cluster."""
    cache, chance = Cache(), random.Random(1)
    for i in range(nodes):
        labels = {SPINE: f"spine-{i // PER_SPINE}", LEAF: f"leaf-{i // PER_LEAF}"}
        cache.upsert_node(make_node(f"node-{i:05}", labels=labels))
    at = 0
    for number in range(gangs):
        size = min(chance.choice((1, 1, 1, 2, 2, 2, 3, 4, 4, 8)), nodes - at)
        name, priority = f"low-{number}", chance.randrange(3)
        members = (
            make_pod(f"{name}-{i}", 8, cpu=8, node=f"node-{at + i:05}", labels={GROUP: name}, priority=priority)
            for i in range(size)
        )
        for member in gang(cache, name, members, size):
            cache.upsert_pod(member)
        at += size
    for i in range(at, nodes):
        for n in range(8):
            pod = make_pod(f"single-{i}-{n}", 1, cpu=1, node=f"node-{i:05}", priority=chance.randrange(3))
            cache.upsert_pod(cache.record(pod))
    return cache


def runtime_for(cache: Cache) -> Runtime:
    """A profile of what places gangs, and the plugin."""
    handle = FakeHandle(cache, grouping=Groups(cache))
    return make_runtime(cache, NodeResourcesFit, GangPermit, TopologyPlacement, Deciding, handle=handle)


def measure(cache: Cache, runtime: Runtime, case: Case, runs: int) -> tuple[list[float], EvictionPlan | Status]:
    """Milliseconds of each decision, and what it was."""
    times = []
    for run in range(runs + 1):
        name, size = f"high-{case.name}-{run}", case.nodes * 8 // case.gpus
        notes = {REQUIRED: case.level} if case.level else {}
        members = (
            make_pod(f"{name}-{i}", case.gpus, cpu=1, labels={GROUP: name}, annotations=notes, priority=case.priority)
            for i in range(size)
        )
        unit = Unit(gang(cache, name, members, size), added=0.0, group=name)
        gc.collect()
        decided = decide_group(unit, runtime, cache, {}, 1.0)
        assert isinstance(decided, GroupRejection) and not decided.is_error, decided
        times.append(Deciding.milliseconds)
    return times[1:], Deciding.plan


@click.command()
@click.option("--nodes", default=2000, show_default=True)
@click.option("--gangs", default=700, show_default=True)
@click.option("--runs", default=5, show_default=True)
def main(nodes: int, gangs: int, runs: int) -> None:
    """Measure and print."""
    cache = cluster(nodes, gangs)
    runtime = runtime_for(cache)
    table = Table("gang", "median ms", "most ms", "victims", f"bar {BAR:g} ms", box=None)
    for case in CASES:
        times, plan = measure(cache, runtime, case, runs)
        victims = str(len(plan.victims)) if isinstance(plan, EvictionPlan) else "no help"
        verdict = "met" if max(times) < BAR else "missed"
        table.add_row(case.name, f"{median(times):.1f}", f"{max(times):.1f}", victims, verdict)
    console = Console(width=100)
    console.print(f"{nodes} nodes, {gangs} gangs, {len(cache.pods)} pods that have a node")
    console.print(table)


if __name__ == "__main__":
    main()
