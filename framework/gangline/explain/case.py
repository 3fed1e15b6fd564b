"""A scheduling problem as plain objects, judged by the same profiles and columns as a live cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline import config, model
from gangline.assembly import build_runtimes
from gangline.cache import Cache
from gangline.clock import SystemClock
from gangline.errors import GanglineError
from gangline.evaluation import Filtered
from gangline.kube.resources import STORED, Resource
from gangline.metrics import Metrics
from gangline.pods import PodInfo
from gangline.recording import NoRecorder
from gangline.registry import Catalog
from gangline.runtime import Runtime
from gangline.status import Code
from gangline.waiting import WaitingPods

_CASE_PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: most-allocated
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}, {name: nvidia.com/gpu, weight: 3}]
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}, {name: nvidia.com/gpu, weight: 1}]}
- schedulerName: rtcr
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: nvidia.com/gpu, weight: 5}, {name: cpu, weight: 1}, {name: memory, weight: 1}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
- schedulerName: custom
  plugins:
    score:
      enabled: [{name: ImageLocality, weight: 4}, {name: NodeResourcesFit, weight: 3}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: memory, weight: 2}, {name: cpu, weight: 1}, {name: ephemeral-storage, weight: 1}]
        requestedToCapacityRatio:
          shape: [{utilization: 20, score: 0}, {utilization: 50, score: 10}, {utilization: 90, score: 3}]
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}, {name: ephemeral-storage, weight: 1}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 10, ignorePreferredTermsOfExistingPods: true}
"""


def verdict(case: dict[str, Any]) -> dict[str, Any]:
    """Feasible nodes, filter verdicts, scores and totals of one problem.

    `case` holds lists of objects by plural in lower case (nodes, pods, pvcs, ...) and the pod to place under `pod`; `_gates`
    the feature gates that are not at their default, `_profiles` the profiles to score, among default-scheduler,
    most-allocated, rtcr and custom. Raises GanglineError for an object that cannot be used.
    """
    text = _CASE_PROFILES
    if case.get("_gates", {}).get("TaintTolerationComparisonOperators"):
        text = text.replace(
            "  pluginConfig:\n", "  pluginConfig:\n  - name: TaintToleration\n    args: {enableComparisonOperators: true}\n"
        ).replace(
            "- schedulerName: default-scheduler\n",
            "- schedulerName: default-scheduler\n  pluginConfig:\n"
            "  - name: TaintToleration\n    args: {enableComparisonOperators: true}\n",
        )
    cluster = load_cluster(case)
    runtimes = cluster_runtimes(cluster, config.load(text, "case profiles"))
    pod = cluster.record(msgspec.convert(case["pod"], model.Pod, strict=False))
    wanted = case.get("_profiles") or list(runtimes)
    filtered = runtimes["default-scheduler"].evaluator.filter(pod)
    diagnosis = runtimes["default-scheduler"].evaluator.diagnose(filtered)
    feasible = [cluster.nodes.names[row] for row in filtered.feasible.nonzero()[0]]
    filters: dict[str, dict[str, str]] = {}
    for row, name in enumerate(cluster.nodes.names):
        found = None if diagnosis.status is not None else diagnosis.node(row)
        if found is not None and (diagnosis.narrowed is None or diagnosis.narrowed[row]):
            filters.setdefault(found[0], {})[name] = found[1].value
    result: dict[str, Any] = {"feasible": feasible, "filter": filters}
    if not feasible:
        result["message"] = diagnosis.message()
    if len(feasible) > 1:
        scores = {p: _scores(runtimes[p], pod, feasible) for p in wanted if p in runtimes}
        result["scores"] = scores
        result["totals"] = {p: _totals(runtimes[p], feasible, scores[p]) for p in scores}
    return result


def load_cluster(case: Mapping[str, Any]) -> Cache:
    """A cache that holds the objects of a case. Raises GanglineError for the first that cannot be used."""
    cluster = Cache()
    for resource in STORED:
        store = cluster.store(resource.plural)
        for obj in _objects(case, resource):
            store.upsert(obj)
    for node in msgspec.convert(case.get("nodes", []), list[model.Node], strict=False):
        cluster.upsert_node(node)
    for pod in msgspec.convert(case.get("pods", []), list[model.Pod], strict=False):
        if pod.spec.node_name:
            cluster.upsert_pod(cluster.record(pod))
    return cluster


def cluster_runtimes(cluster: Cache, configuration: config.SchedulerConfiguration) -> dict[str, Runtime]:
    """Profiles that judge this cluster and write nothing."""
    return build_runtimes(
        configuration, Catalog.discover(), cluster, SystemClock(), NoRecorder(), WaitingPods(), None, Metrics(), None
    )


_SHORT = {"persistentvolumeclaims": "pvcs", "persistentvolumes": "pvs", "poddisruptionbudgets": "pdbs"}


def _objects(case: Mapping[str, Any], resource: Resource[Any]) -> list[Any]:
    given = case.get(resource.plural) or case.get(_SHORT.get(resource.plural, "")) or []
    objects: list[Any] = msgspec.convert(given, list[resource.type], strict=False)  # type: ignore[name-defined]  # a runtime type
    return objects


def _scores(runtime: Runtime, pod: PodInfo, feasible: list[str]) -> dict[str, dict[str, int]]:
    filtered: Filtered = runtime.evaluator.filter(pod)
    return {
        plugin: dict(zip(feasible, (int(score) for score in column), strict=True))
        for plugin, column in runtime.evaluator.scores(filtered).items()
    }


def _totals(runtime: Runtime, feasible: list[str], scores: dict[str, dict[str, int]]) -> dict[str, int]:
    weights = runtime.evaluator.weights()
    return {node: sum(weights[p] * column[node] for p, column in scores.items()) for node in feasible}


__all__ = ["Code", "GanglineError", "cluster_runtimes", "load_cluster", "verdict"]
