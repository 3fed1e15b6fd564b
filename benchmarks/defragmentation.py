"""Defragmentation: one plan on a fragmented cluster of gangs, without an API server.

    python benchmarks/defragmentation.py [--nodes 2000] [--gangs 700] [--runs 3] [--profile gpu-scheduler]

Nodes of 8 GPUs in spines of 16 leaves of 8 nodes hold gangs of one to eight members with one to eight GPUs each, and
pods of one and two GPUs on their own, all at random places, so that hardly a leaf is whole; a tenth of all never moves.
A plan is all that `Planner` does: who may move, which domain is cheapest, a place for each pod that moves, and the
proof on the real columns that the gang then fits. Nobody is evicted.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import click
import msgspec
from rich.console import Console
from rich.table import Table

import gangline_profiles
from gangline import config, model, resources
from gangline.deciding.what_if import WhatIf
from gangline.groups import Groups
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.testing import make_node, make_pod
from gangline_plugins.defragmentation import DefragmentationArgs, MovePlan, Planner

BAR = 2000.0
"""Milliseconds that one plan may take at 2,000 nodes with 700 gangs."""
PER_LEAF, PER_SPINE = 8, 128
SPINE, LEAF = "topology.gangline.dev/spine", "topology.gangline.dev/leaf"
GROUP, REQUIRED = "scheduling.x-k8s.io/pod-group", "gangline.dev/topology-required"
NEVER_MOVE, INTERVAL = "gangline.dev/never-move", "gangline.dev/checkpoint-interval"


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    nodes: int
    level: str = ""


CASES = (
    Case("8 nodes, one leaf", 8, "leaf"),
    Case("64 nodes, one spine", 64, "spine"),
    Case("96 nodes, one spine", 96, "spine"),
    Case("512 nodes, anywhere", 512),
    Case("129 nodes, one spine: impossible", 129, "spine"),
)


class Bench:
    """A fragmented cluster under one profile."""

    def __init__(self, nodes: int, gangs: int, profile: str) -> None:
        self.cache, self._chance, self._profile = Cache(), random.Random(1), profile
        for i in range(nodes):
            labels = {SPINE: f"spine-{i // PER_SPINE}", LEAF: f"leaf-{i // PER_LEAF}"}
            self.cache.upsert_node(make_node(f"node-{i:05}", labels=labels))
        self._free = [8] * nodes
        self._fill(gangs)
        self._waiting: dict[str, Unit] = {}
        self.runtime = self._runtime()

    def _fill(self, gangs: int) -> None:
        for number in range(gangs):
            size, gpus = self._chance.choice((1, 2, 2, 4, 4, 8)), self._chance.choice((1, 1, 2, 2, 4, 8))
            name = f"gang-{number}"
            self._define(name, size)
            notes = self._notes()
            for i in range(size):
                self._run(f"{name}-{i}", gpus, name, {GROUP: name}, notes)
        for number in range(len(self._free) // 4):
            self._run(f"single-{number}", self._chance.choice((1, 2)), f"single-{number}", {}, self._notes())

    def _notes(self) -> dict[str, str]:
        if self._chance.random() < 0.1:
            return {NEVER_MOVE: "true"}
        return {INTERVAL: "30m"} if self._chance.random() < 0.5 else {}

    def _define(self, name: str, size: int) -> None:
        meta = model.ObjectMeta(name=name, namespace="default", uid=name)
        group = model.PodGroup(metadata=meta, spec=model.PodGroupSpec(min_member=size))
        self.cache.store(resources.SCHEDULER_PLUGINS_POD_GROUPS).upsert(group)

    def _run(self, name: str, gpus: int, owner: str, labels: dict[str, str], notes: dict[str, str]) -> None:
        row = self._chance.choice([row for row, free in enumerate(self._free) if free >= gpus])
        self._free[row] -= gpus
        pod = make_pod(
            name,
            gpus,
            cpu=gpus,
            node=f"node-{row:05}",
            labels=labels,
            annotations=notes,
            scheduler_name=self._profile,
        )
        pod.metadata.owner_references = [model.OwnerReference(kind="Job", name=owner, uid=owner, controller=True)]
        ran = self._chance.uniform(60.0, 20_000.0)
        started = datetime.fromtimestamp(time.time() - ran, UTC).isoformat()
        status = msgspec.structs.replace(pod.status, start_time=started)
        self.cache.upsert_pod(self.cache.record(msgspec.structs.replace(pod, status=status)))

    def _runtime(self) -> Runtime:
        loaded = config.load(gangline_profiles.read(self._profile), self._profile)
        runtimes: dict[str, Runtime] = {}
        pending = WhatIf(runtimes, self.cache, lambda: {}, self._waiting.get, time.monotonic)
        judging_runtimes(
            loaded,
            self.cache,
            ties=random.Random(1),
            grouping=Groups(self.cache),
            pending=pending,
            at_work=runtimes,
        )
        return runtimes[self._profile]

    def wait(self, case: Case) -> str:
        """A gang waits; its key."""
        name = f"big-{len(self._waiting)}"
        self._define(name, case.nodes)
        notes = {REQUIRED: case.level} if case.level else {}
        pods = [
            make_pod(f"{name}-{i}", 8, cpu=8, labels={GROUP: name}, annotations=notes, scheduler_name=self._profile)
            for i in range(case.nodes)
        ]
        members = [self.cache.record(pod) for pod in pods]
        key = self.runtime.group_key(members[0])
        self._waiting[key] = Unit(members, added=time.monotonic(), group=key)
        return key

    def for_gang(self, key: str) -> MovePlan:
        """A plan for a gang that waits."""
        attempt = self.runtime.handle.attempt(key)
        assert attempt is not None
        return Planner(self.runtime.handle, DefragmentationArgs(factor=1.0)).for_group(attempt)

    def for_leaves(self, wanted: int) -> MovePlan:
        """A plan for complete leaves."""
        return Planner(self.runtime.handle, DefragmentationArgs(factor=1.0)).for_domains("leaf", wanted)


def measure(work: Callable[[], MovePlan], runs: int) -> tuple[list[float], MovePlan]:
    """Milliseconds of each run, and the last plan; the first run, which fills caches, counts too."""
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.perf_counter()
        plan = work()
        times.append(1e3 * (time.perf_counter() - start))
    return times, plan


@click.command()
@click.option("--nodes", default=2000, show_default=True)
@click.option("--gangs", default=700, show_default=True)
@click.option("--runs", default=3, show_default=True)
@click.option("--profile", default="gpu-scheduler", show_default=True)
def main(nodes: int, gangs: int, runs: int, profile: str) -> None:
    """Measure and print."""
    bench = Bench(nodes, gangs, profile)
    table = Table("goal", "median ms", "most ms", "moves", "pods", "GPU-seconds", f"bar {BAR:g} ms", box=None)
    goals: list[tuple[str, Callable[[], MovePlan]]] = []
    for case in CASES:
        key = bench.wait(case)
        goals.append((case.name, lambda key=key: bench.for_gang(key)))  # type: ignore[misc]  # a default argument
    goals.append(("16 complete leaves", lambda: bench.for_leaves(16)))
    for name, work in goals:
        times, plan = measure(work, runs)
        verdict = "met" if max(times) < BAR else "missed"
        moves = plan.message if plan.message else str(len(plan.moves))
        table.add_row(
            name, f"{median(times):.0f}", f"{max(times):.0f}", moves, str(len(plan.steps)), f"{plan.cost:,.0f}", verdict
        )
    console = Console(width=140)
    console.print(f"{nodes} nodes, {gangs} gangs, {len(bench.cache.pods)} pods, profile {profile}")
    console.print(table)


if __name__ == "__main__":
    main()
