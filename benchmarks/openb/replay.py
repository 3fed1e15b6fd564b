"""Replays one run of a trace: the cache, a compiled profile and `scheduling.decide`, one pod at a time, none leaves."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gangline import config, model
from gangline.deciding.scheduling import Decision, decide
from gangline.profile.assembly import judging_runtimes
from gangline.profile.registry import Catalog
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.replay import objects
from gangline.replay.trace import TraceNode
from gangline.state.cache import Cache
from gangline_plugins.anti_fragmentation import AntiFragmentation
from gangline_plugins.anti_fragmentation.arguments import TypicalPod
from gangline_plugins.gpu.node_devices import WHOLE
from openb import claimed
from openb.policies import Policy
from openb.trace import Arrival, TracePod


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run."""

    curve: dict[int, float]
    """For each demand, in % of all GPUs, the % that is allocated: the mean over the pods that come at this demand."""
    allocated: float
    """GPUs in use at the end, in % of all."""
    idle: float
    """GPUs that are not."""
    lost: Counter[str]
    """Pods that found no place, by size."""
    seconds: float
    """Seconds for all decisions."""
    pods: int


def replay(
    nodes: Sequence[TraceNode],
    pods: Sequence[TracePod],
    typical: list[TypicalPod],
    arrival: Arrival,
    policy: Policy,
) -> Outcome:
    """Every pod once, in the order of arrival."""
    cache = _cluster([nodes[row] for row in arrival.nodes], pods, bool(policy.order))
    runtime = _runtime(cache, policy, typical, random.Random(arrival.seed) if policy.is_random else None)
    records = [
        cache.record(_pod(number, pods[row], cache if policy.order else None))
        for number, row in enumerate(arrival.pods)
    ]
    total = WHOLE * sum(node.gpus for node in nodes)
    placed: list[bool] = []
    was_enabled = gc.isenabled()
    gc.disable()  # no garbage collection while times are measured, as timeit does
    try:
        start = time.perf_counter()
        for record in records:
            runtime.enqueued(record)
            placed.append(isinstance(decide(Unit([record], added=0.0), runtime, cache, {}), Decision))
        seconds = time.perf_counter() - start
    finally:
        if was_enabled:
            gc.enable()
    return _outcome([pods[row] for row in arrival.pods], placed, total, seconds)


def _outcome(pods: Sequence[TracePod], placed: Sequence[bool], total: int, seconds: float) -> Outcome:
    asked = allocated = 0
    points: dict[int, list[float]] = {}
    for pod, has_place in zip(pods, placed, strict=True):
        asked += pod.demand
        allocated += pod.demand * has_place
        points.setdefault(round(100.0 * asked / total), []).append(100.0 * allocated / total)
    lost = Counter(pod.size for pod, has_place in zip(pods, placed, strict=True) if not has_place)
    curve = {x: sum(ys) / len(ys) for x, ys in points.items()}
    return Outcome(curve, 100.0 * allocated / total, (total - allocated) / WHOLE, lost, seconds, len(pods))


def _cluster(nodes: Sequence[TraceNode], pods: Sequence[TracePod], with_claims: bool) -> Cache:
    """Nodes with their reports, and a claim for each part of a device that some pod wants; or nodes with slices."""
    cache = Cache()
    if with_claims:
        claimed.offer_class(cache)
        for node in nodes:
            cache.upsert_node(objects.node_of(replace(node, gpus=0)))
            claimed.offer(cache, node)
        return cache
    objects.fill(cache, nodes, pods)
    return cache


def _pod(number: int, pod: TracePod, with_claims: Cache | None = None) -> model.Pod:
    asks = pod if with_claims is None else replace(pod, gpus=0, milli=0)
    (made,) = objects.pods_of(asks, f"{number}", "default-scheduler")
    if with_claims is not None and pod.gpus:
        claimed.claim(with_claims, made, pod)
    return made


_CLAIMS = "DynamicResources"
_WEIGHTS = {AntiFragmentation.name: 10_000, _CLAIMS: 9_000}
"""The weights of the plugins, as in the packaged profiles for GPUs."""


def _runtime(cache: Cache, policy: Policy, typical: list[TypicalPod], ties: random.Random | None) -> Runtime:
    """A profile with the filters that the trace needs and the plugins of the policy."""
    names = [plugin.name for plugin in policy.plugins]
    args: dict[str, Any] = {"score": policy.score, "typicalPods": [] if policy.learns else msgspec.to_builtins(typical)}
    enabled: list[dict[str, Any]] = _enabled("PrioritySort", *names, "GpuClaim", "DefaultBinder")
    if policy.order:
        enabled = [{**each, "weight": _WEIGHTS.get(each["name"], 1)} for each in [*enabled, {"name": _CLAIMS}]]
    profile: dict[str, Any] = {
        "schedulerName": "default-scheduler",
        "plugins": {
            "multiPoint": {
                "disabled": [{"name": "*"}],
                "enabled": enabled,
            },
            "preFilter": {"enabled": _enabled("NodeAffinity")},
            "filter": {"enabled": _enabled("NodeResourcesFit", "NodeAffinity")},
        },
        "pluginConfig": [
            *([{"name": AntiFragmentation.name, "args": args}] if policy.score else []),
            *([{"name": _CLAIMS, "args": {"allocationOrder": policy.order}}] if policy.order else []),
        ],
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    runtimes = judging_runtimes(
        config.load(msgspec.yaml.encode(document).decode(), "fragmentation"),
        cache,
        catalog=Catalog.discover().with_classes(*policy.plugins),
        ties=ties,
    )
    return runtimes["default-scheduler"]


def _enabled(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]
