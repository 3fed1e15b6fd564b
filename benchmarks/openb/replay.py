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
from gangline.kube.resources import GPU_CLAIMS, GPU_NODE_STATUSES
from gangline.profile.assembly import judging_runtimes
from gangline.profile.registry import Catalog
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.wire.custom_resources import (
    CLAIM,
    GPU,
    ClaimDevices,
    GpuClaim,
    GpuClaimSpec,
    GpuDevice,
    GpuNodeStatus,
    GpuNodeStatusSpec,
    GpuNodeStatusStatus,
)
from gangline_plugins.anti_fragmentation import AntiFragmentation
from gangline_plugins.anti_fragmentation.arguments import PRODUCT, TypicalPod
from gangline_plugins.gpu.node_devices import WHOLE
from openb import claimed
from openb.policies import Policy
from openb.trace import Arrival, TraceNode, TracePod

_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run."""

    curve: dict[int, float]
    """Demand in % of all GPUs to the % that is allocated, the mean over the pods that come then."""
    allocated: float
    """GPUs in use at the end, in % of all."""
    idle: float
    """GPUs that are not."""
    lost: Counter[str]
    """Pods that found no place, by size."""
    seconds: float
    """For all decisions."""
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
    gc.disable()  # as timeit does
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
            cache.upsert_node(_node(replace(node, gpus=0)))
            claimed.offer(cache, node)
        return cache
    for node in nodes:
        cache.upsert_node(_node(node))
        devices = [
            GpuDevice(id=id, uuid=f"{node.name}-{id}", model=node.model, health="Healthy") for id in range(node.gpus)
        ]
        status = GpuNodeStatusStatus(total=node.gpus, devices=devices)
        cache.store(GPU_NODE_STATUSES).upsert(
            GpuNodeStatus(model.ObjectMeta(name=node.name), GpuNodeStatusSpec(node.name), status)
        )
    for count, milli in {(pod.gpus, pod.milli) for pod in pods if _is_part(pod)}:
        devices_ = ClaimDevices(count=count, exclusivity="Shared", fraction=milli / WHOLE)
        metadata = model.ObjectMeta(name=f"part-{count}-{milli}", namespace=_NAMESPACE)
        cache.store(GPU_CLAIMS).upsert(GpuClaim(metadata, GpuClaimSpec(devices=devices_)))
    return cache


def _node(node: TraceNode) -> model.Node:
    amounts: model.Resources = {"cpu": f"{node.cpu}m", "memory": f"{node.memory}Mi", GPU: node.gpus, "pods": 10_000}
    return model.Node(
        metadata=model.ObjectMeta(name=node.name, labels={PRODUCT: node.model}),
        status=model.NodeStatus(allocatable=amounts),
    )


def _pod(number: int, pod: TracePod, with_claims: Cache | None = None) -> model.Pod:
    requests: model.Resources = {"cpu": f"{pod.cpu}m", "memory": f"{pod.memory}Mi"}
    annotations = {}
    if with_claims is not None:
        pass
    elif _is_part(pod):
        annotations[CLAIM] = f"part-{pod.gpus}-{pod.milli}"
    elif pod.gpus:
        requests[GPU] = pod.gpus
    container = model.Container(name="main", resources=model.ResourceRequirements(requests=requests))
    made = model.Pod(
        metadata=model.ObjectMeta(
            name=f"{pod.name}-{number}", namespace=_NAMESPACE, uid=f"{number}", annotations=annotations
        ),
        spec=model.PodSpec(containers=[container], affinity=_affinity(pod.models)),
    )
    if with_claims is not None and pod.gpus:
        claimed.claim(with_claims, made, pod)
    return made


def _affinity(models: Sequence[str]) -> model.Affinity | None:
    if not models:
        return None
    term = model.NodeSelectorTerm(
        match_expressions=[model.Requirement(key=PRODUCT, operator="In", values=list(models))]
    )
    return model.Affinity(node_affinity=model.NodeAffinity(required=model.NodeSelector(node_selector_terms=[term])))


def _is_part(pod: TracePod) -> bool:
    return 0 < pod.milli < WHOLE


_CLAIMS = "DynamicResources"
_WEIGHTS = {AntiFragmentation.name: 10_000, _CLAIMS: 9_000}
"""As in the profiles for GPUs."""


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
