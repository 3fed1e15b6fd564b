"""Milliseconds for one decision on a whole gang, without an API server: placements, filling, reserve, permit, assume.

    python benchmarks/gangs.py [--nodes 5000 --nodes 20000] [--members 16 --members 128 --members 1000] [--runs 5]
                                [--reports]

Each member takes a node with 8 GPUs. Racks have 25 nodes, blocks 10 racks, zones 10 blocks; on an occupied cluster 30 %
of the nodes, at random, have a pod of 8 GPUs. Each gang is of a pod class of its own, so nothing is known of it, and is
given back after it was placed. `required` is the narrowest level that can hold the gang; `preferred` is the rack, which
holds the smallest ones only; `fallback` is "rack,2m;block,10m;any" for a gang that has waited until its step has come.
With `--reports` each node has a GpuNodeStatus, as the agent writes it, so exact devices are chosen for each member.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

import gangline_profiles
from gangline import config, custom_resources, model
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.group_search import decide_group
from gangline.deciding.scheduling import give_back
from gangline.groups import Groups
from gangline.kube.resources import GPU_NODE_STATUSES, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.process.memory import keep_memory, settle_memory
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline_plugins.gpu.named_hardware import devices

GROUP = "scheduling.x-k8s.io/pod-group"
REQUIRED, PREFERRED, FALLBACK = (f"gangline.dev/topology-{kind}" for kind in ("required", "preferred", "fallback"))
RACK, BLOCK, ZONE = (f"topology.kubernetes.io/{level}" for level in ("rack", "block", "zone"))
BARE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: bare
  plugins:
    multiPoint:
      enabled: [{name: PrioritySort}, {name: NodeResourcesFit}, {name: GangPermit}, {name: TopologyPlacement},
                {name: DefaultBinder}]
      disabled: [{name: "*"}]
"""
NOW = 10_000.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a gang asks for, and how many seconds it has waited."""

    name: str
    annotations: Mapping[str, str]
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Timed:
    """What one decision took."""

    seconds: float
    cpu: float


class Bench:
    """One profile on one cluster, and gangs for it."""

    def __init__(self, profile: str, nodes: int, occupied: float, reports: bool = False) -> None:
        self.cache = cluster(nodes, occupied, reports)
        self.runtime = runtime_for(profile, self.cache)
        self._number = 0
        settle_memory()  # as `gangline run` does when everything is listed

    def measure(self, members: int, wish: Wish, is_placed: bool = True) -> Timed:
        """The time for one new gang; it is given back."""
        self._number += 1
        unit = self._gang(f"gang-{self._number}", members, wish)
        gc.collect()
        start, cpu = time.perf_counter(), time.process_time()
        outcome = decide_group(unit, self.runtime, self.cache, {}, NOW)
        timed = Timed(time.perf_counter() - start, time.process_time() - cpu)
        placed = len(outcome.members) if isinstance(outcome, GroupDecision) else 0
        why = outcome.message if isinstance(outcome, GroupRejection) else f"{placed} of {members} were placed"
        assert placed == (members if is_placed else 0), why
        if isinstance(outcome, GroupDecision):
            for decision in outcome.members:
                give_back(self.runtime, self.cache, decision.cycle, decision.pod, decision.node)
        return timed

    def _gang(self, name: str, members: int, wish: Wish) -> Unit:
        """The gang as the queue has it: its pods are known, and the group of each has been read."""
        self.cache.store(SCHEDULER_PLUGINS_POD_GROUPS).upsert(
            model.PodGroup(
                metadata=model.ObjectMeta(name=name, namespace="default", uid=name, annotations=dict(wish.annotations)),
                spec=model.PodGroupSpec(min_member=members),
            )
        )
        pods = [self.cache.record(member(name, i, 1000 + self._number)) for i in range(members)]
        (key,) = {self.runtime.group_key(pod) for pod in pods}
        return Unit(pods, added=NOW - wish.waited, group=key)


def cluster(nodes: int, occupied: float, reports: bool = False) -> Cache:
    """Nodes of 8 GPUs in racks, blocks and zones; a share of them, at random, is full."""
    cache = Cache()
    has = custom_resources.GpuNodeStatusStatus(total=8, devices=devices("hgx-h100"))
    full = random.Random(42).sample(range(nodes), int(nodes * occupied))
    for i in range(nodes):
        name = f"node-{i:05}"
        labels = {
            "kubernetes.io/hostname": name,
            ZONE: f"zone-{i // 2500}",
            BLOCK: f"block-{i // 250}",
            RACK: f"rack-{i // 25}",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        }
        resources: model.Resources = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"}
        status = model.NodeStatus(allocatable=resources)
        cache.upsert_node(model.Node(metadata=model.ObjectMeta(name=name, labels=labels), status=status))
        if reports:
            meta, spec = model.ObjectMeta(name=name), custom_resources.GpuNodeStatusSpec(name)
            cache.store(GPU_NODE_STATUSES).upsert(custom_resources.GpuNodeStatus(meta, spec, has))
    for i in full:
        cache.upsert_pod(cache.record(member("busy", i, 1000, node=f"node-{i:05}")))
    return cache


def member(group: str, number: int, cpu_milli: int, node: str = "") -> model.Pod:
    """A pod of 8 GPUs; cpu_milli makes the class."""
    requests: model.Resources = {"cpu": f"{cpu_milli}m", "memory": "64Gi", "nvidia.com/gpu": 8}
    container = model.Container(name="main", image="train:1", resources=model.ResourceRequirements(requests=requests))
    name, labels = f"{group}-{number}", {} if node else {GROUP: group}
    return model.Pod(
        metadata=model.ObjectMeta(name=name, namespace="default", uid=name, labels=labels),
        spec=model.PodSpec(containers=[container], node_name=node),
    )


def runtime_for(profile: str, cache: Cache) -> Runtime:
    """The packaged profile for GPUs, or one with nothing but what a gang needs."""
    text = BARE if profile == "bare" else gangline_profiles.read(profile)
    runtimes = judging_runtimes(config.load(text, profile), cache, ties=random.Random(1), grouping=Groups(cache))
    return runtimes[profile]


def wishes(members: int) -> Iterator[Wish]:
    """The kinds of constraints, for a gang of so many nodes."""
    narrowest, waited = ("rack", 0.0) if members <= 16 else ("block", 300.0) if members <= 128 else ("zone", 900.0)
    yield Wish("required", {REQUIRED: narrowest})
    yield Wish("preferred", {PREFERRED: "rack"})
    yield Wish("fallback", {FALLBACK: "rack,2m;block,10m;any"}, waited)


@click.command()
@click.option("--nodes", multiple=True, type=int, default=(5000, 20000), show_default=True)
@click.option("--members", multiple=True, type=int, default=(16, 128, 1000), show_default=True)
@click.option("--runs", default=5, show_default=True)
@click.option("--profile", "profiles", multiple=True, default=("gpu-scheduler", "bare"), show_default=True)
@click.option("--reports", is_flag=True, help="Each node reports its GPUs.")
def main(nodes: Sequence[int], members: Sequence[int], runs: int, profiles: Sequence[str], reports: bool) -> None:
    """Measure and print."""
    keep_memory()  # as `gangline run` does
    table = Table("profile", "nodes", "occupied", "gang", "topology", "median ms", "worst ms", "CPU ms", box=None)
    for profile in profiles:
        for size in nodes:
            for occupied in (0.0, 0.3):
                bench = Bench(profile, size, occupied, reports)
                for count in members:
                    for wish in wishes(count):
                        times = [bench.measure(count, wish) for _ in range(runs)]
                        table.add_row(profile, str(size), f"{occupied:.0%}", str(count), wish.name, *_cells(times))
            full = Bench(profile, size, 1.0, reports)
            times = [full.measure(10, Wish("none", {}), is_placed=False) for _ in range(runs)]
            table.add_row(profile, str(size), "100%", "10", "none: no room", *_cells(times))
    Console(width=100).print(table)


def _cells(times: Sequence[Timed]) -> tuple[str, str, str]:
    wall = [timed.seconds * 1e3 for timed in times]
    cpu = statistics.median(timed.cpu for timed in times) * 1e3
    return f"{statistics.median(wall):.2f}", f"{max(wall):.2f}", f"{cpu:.2f}"


if __name__ == "__main__":
    main()
