"""A pod is deleted while many pods wait that fit nowhere: how long the queue blocks, and how many pods it tries.

The pods have been rejected by the default profile on full nodes. Each deletion makes room for some of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from cycle import cluster, pod, runtime_for
from gangline import model
from gangline.api.hints import Action, ClusterEvent
from gangline.deciding.kinds import kind_of
from gangline.deciding.scheduling import Decision, Rejection, decide
from gangline.process.memory import settle_memory
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Unit

T = TypeVar("T")
Rows = list[tuple[str, str]]
NODES, GPUS = 1_000, 8
DELETED = (1, 2, 3)
"""The nodes whose pod is deleted."""
MOST_TRIED = 1_000
"""Pods that are tried after a deletion, at most: of pods with classes of their own, all would be tried."""
CLASSES: Mapping[str, Callable[[int], int]] = {
    "of three classes": lambda number: 1_000 + number % 3,
    "each of its own class": lambda number: 1_000 + number,
}
"""For each kind of workload the milli-CPU of a pod, which makes its class."""


def deletions(waiting: int) -> Rows:
    """Rows for pods of few classes, and of as many classes as pods."""
    rows: Rows = []
    for name, cpu_of in CLASSES.items():
        cluster = Full(waiting, cpu_of)
        costs = [cluster.delete(number) for number in DELETED]
        calls = f"{max(each.longest for each in costs) * 1e3:.1f} ms, {max(each.cpu for each in costs) * 1e3:.0f} ms"
        rows += [
            (f"a pod of {GPUS} GPUs is deleted, {waiting:,} pods wait for one, {name}: longest call, all", calls),
            ("    tried, bound", f"{max(each.tried for each in costs)}, {min(each.bound for each in costs)}"),
        ]
    return rows


@dataclass(slots=True)
class Cost:
    """What followed from a deletion, in CPU seconds."""

    longest: float = 0.0
    """The longest call of the queue."""
    cpu: float = 0.0
    """Until nothing is left to try, decisions included."""
    tried: int = 0
    bound: int = 0


class Full:
    """A full cluster, and a queue of pods that were rejected on it."""

    def __init__(self, waiting: int, cpu_of: Callable[[int], int]) -> None:
        self._cache = cluster(NODES)
        self._runtime = runtime = runtime_for(self._cache)
        for number in range(NODES):
            self._cache.upsert_pod(self._cache.record(_running(number)))
        self._queue = queue = SchedulingQueue()
        events = runtime.profile.events
        queue.serve(runtime.name, runtime.sort_key, runtime.admit, events, runtime.group_key)
        for number in range(waiting):
            queue.add(self._cache.record(pod(number, cpu_of(number))), 0.0)
        plugins: frozenset[str] = frozenset()
        while (unit := queue.pop(0.0)) is not None or queue.has_active:
            if unit is None:
                continue
            if not plugins:
                rejection = decide(unit, runtime, self._cache, {})
                assert isinstance(rejection, Rejection)
                plugins = rejection.plugins  # of all others, too
            queue.requeue(unit, plugins, "", 0.0, kind=kind_of(unit.pod, runtime, plugins))
        settle_memory()

    def delete(self, number: int) -> Cost:
        """Delete a pod, and try pods until none is left to be tried."""
        cost, now, began = Cost(), number * 20.0, time.process_time()
        gone = self._cache.remove_pod(_running(number).metadata.uid)
        event = ClusterEvent("pods", Action.DELETE)
        self._timed(cost, lambda: self._queue.happened(event, gone, None, now))
        while True:
            unit = self._timed(cost, lambda: self._queue.pop(now))
            if unit is not None:
                self._try(unit, cost, now)
            if cost.tried == MOST_TRIED or (unit is None and not self._queue.has_active):
                break
        cost.cpu = time.process_time() - began
        return cost

    def _try(self, unit: Unit, cost: Cost, now: float) -> None:
        cost.tried += 1
        outcome = decide(unit, self._runtime, self._cache, {})
        if isinstance(outcome, Decision):
            cost.bound += 1
            self._queue.done(unit)
            return
        requeue = self._queue.requeue
        self._timed(cost, lambda: requeue(unit, outcome.plugins, outcome.message, now, kind=outcome.kind))

    def _timed(self, cost: Cost, call: Callable[[], T]) -> T:
        began = time.process_time()
        found = call()
        cost.longest = max(cost.longest, time.process_time() - began)
        return found


def _running(number: int) -> model.Pod:
    """A pod that has all GPUs of a node."""
    requests: model.Resources = {"cpu": "1", "nvidia.com/gpu": GPUS}
    container = model.Container(name="main", image="train:1", resources=model.ResourceRequirements(requests=requests))
    return model.Pod(
        metadata=model.ObjectMeta(name=f"running-{number}", namespace="default", uid=f"running-{number}"),
        spec=model.PodSpec(containers=[container], node_name=f"node-{number:05}"),
        status=model.PodStatus(phase="Running"),
    )
