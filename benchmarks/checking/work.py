"""The work that is measured: decisions on pods and on a gang, the whole way of a pod, reading a cluster, the start."""

from __future__ import annotations

import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

import cycle
import gangs
from checking.counting import Instructions, kept, memory, peak
from gangline import model
from gangline.deciding.scheduling import Decision, decide
from gangline.kube.resources import NODES, PODS
from gangline.loop.scheduler import Options
from gangline.queueing.units import Unit
from gangline.simulate import SimulatedCluster, gpu_nodes

NODES_OF_PODS, NODES_OF_GANG, MEMBERS = 5000, 1000, 64
DECISIONS, NEW_CLASSES = 100, 20
ON_THE_WAY = 100
"""The number of pods that go the whole way, from the watch to the binding."""
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: default-scheduler
"""
ROUNDS = 300
"""How often calibration and decision are timed, in turns; the shortest time of each counts."""
MODULES = "import sys, gangline.commands.run; print(len(sys.modules))"


def figures() -> Mapping[str, float]:
    """All figures, by name; in a process with a fixed PYTHONHASHSEED."""
    gc.disable()  # when the garbage collector runs depends on earlier work
    return {
        **_reading(),
        **_pods("known class", DECISIONS, lambda number: 1000),
        **_pods("new class", NEW_CLASSES, lambda number: 1001 + number),
        **_gang(),
        **_whole_way(),
        "modules that the start imports": _modules(),
        **_times(),
    }


def _reading() -> Mapping[str, float]:
    """What a node and a pod cost when a cluster is read: instructions, and bytes that are kept."""
    instructions = Instructions()
    found: dict[str, float] = {}
    with memory():
        before = kept()
        cache = cycle.cluster(1000)
        found["a node: bytes kept"] = (kept() - before) / 1000
        pods = [_bound(number) for number in range(2000)]
        before = kept()
        for pod in pods:
            cache.upsert_pod(cache.record(pod))
        found["a pod: bytes kept"] = (kept() - before) / 2000
    more = [_bound(number) for number in range(2000, 2200)]
    with instructions.counting():
        for pod in more:
            cache.upsert_pod(cache.record(pod))
    found["a pod is read: instructions"] = instructions.count / len(more)
    return found


def _bound(number: int) -> model.Pod:
    pod = cycle.pod(number, 1000)
    pod.spec.node_name = f"node-{number % 1000:05}"
    return pod


class Decisions:
    """Decisions on one pod after the other, on 5,000 nodes in the default profile."""

    def __init__(self, cpu_of: Callable[[int], int]) -> None:
        self._cpu_of = cpu_of
        self._cache = cycle.cluster(NODES_OF_PODS)
        self._runtime = cycle.runtime_for(self._cache)
        self._number = 0
        for _ in range(5):  # the first decisions fill caches
            self.next()()

    def next(self) -> Callable[[], None]:
        """The next decision, of which only the decision itself is left to do."""
        record = self._cache.record(cycle.pod(self._number, self._cpu_of(self._number)))
        self._number += 1
        unit = Unit([record], added=0.0)
        return partial(self._decide, unit)

    def _decide(self, unit: Unit) -> None:
        outcome = decide(unit, self._runtime, self._cache, {})
        assert isinstance(outcome, Decision), outcome


def _pods(name: str, number: int, cpu_of: Callable[[int], int]) -> Mapping[str, float]:
    decisions = Decisions(cpu_of)
    instructions = Instructions()
    for _ in range(number):
        decision = decisions.next()
        with instructions.counting():
            decision()
    with memory():
        most = [peak(decisions.next()) for _ in range(number)]
    return {
        f"{name}: instructions": instructions.count / number,
        f"{name}: bytes at most": statistics.median(most),
    }


def _gang() -> Mapping[str, float]:
    """A gang that has to be in one zone, on nodes that report their GPUs, in the packaged profile for GPUs."""
    bench = gangs.Bench("gpu-scheduler", NODES_OF_GANG, 0.3, reports=True)
    wish = gangs.Wish("required", {gangs.REQUIRED: "block"})
    bench.measure(MEMBERS, wish)
    instructions = Instructions()
    with instructions.counting():
        bench.measure(MEMBERS, wish)
    return {"a member of a gang: instructions": instructions.count / MEMBERS}


def _whole_way() -> Mapping[str, float]:
    """From the event of the watch to the binding and its event, in virtual time."""
    cluster = SimulatedCluster()
    for node in gpu_nodes(ON_THE_WAY // 4):
        cluster.server.create(NODES, node)
    instructions = Instructions()
    looks = iter(range(10**9))

    async def story() -> None:
        # A stopwatch that counts how often it is read: no decision is interrupted because tracing makes it slow.
        options = Options(seed=1, pod_deadline=100.0, stopwatch=lambda: next(looks) * 1e-6)
        async with cluster.scheduling(PROFILE, options=options):
            _come(cluster, "warm")
            await cluster.until(lambda: len(cluster.bound("warm")) == ON_THE_WAY)
            with instructions.counting():
                _come(cluster, "pod")
                await cluster.until(lambda: len(cluster.bound("pod")) == ON_THE_WAY)

    cluster.play(story)
    return {"a pod from watch to binding: instructions": instructions.count / ON_THE_WAY}


def _come(cluster: SimulatedCluster, prefix: str) -> None:
    for number in range(ON_THE_WAY):
        pod = cycle.pod(number, 1000)
        pod.metadata.name = pod.metadata.uid = f"{prefix}-{number}"
        pod.spec.scheduler_name = "default-scheduler"
        cluster.create(PODS, pod)


def _modules() -> float:
    """Of a process of its own, which has imported nothing else."""
    told = subprocess.run([sys.executable, "-c", MODULES], check=True, capture_output=True, text=True)
    return float(told.stdout)


def _times() -> Mapping[str, float]:
    """The CPU time of decisions as multiples of that of fixed work; the shortest times, which others disturb least."""
    known, new = Decisions(lambda number: 1000), Decisions(lambda number: 2000 + number)
    shortest = {"": np.inf, "known class": np.inf, "new class": np.inf}
    for _ in range(ROUNDS):
        for name, work in (("", calibration), ("known class", known.next()), ("new class", new.next())):
            began = time.thread_time()
            work()
            shortest[name] = min(shortest[name], time.thread_time() - began)
    return {f"{name}: time": shortest[name] / shortest[""] for name in ("known class", "new class")}


def calibration() -> float:
    """Fixed work of the kind that a decision does: small objects, dicts and calls, and arrays of 5,000 rows."""
    draw = random.Random(1)
    table = {f"node-{number}": draw.random() for number in range(150)}
    total = sum(sorted(table.values())) + sum(len(name) for name in table if name.endswith("7"))
    column = np.arange(NODES_OF_PODS, dtype=np.float64)
    for _ in range(20):
        column = np.where(column > total, column - total, column + 1.0)
    return float(column.sum())
