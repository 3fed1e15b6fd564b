"""Verdicts on single scheduling problems, in the form in which verdicts of kube-scheduler are recorded.

No other part of the product uses this module. Tests, and judges outside of this repository, compare its answers with
those of kube-scheduler. They import `allocate`, `selects` and `verdict` from `gangline.explain`, so these names stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from gangline import cel, config, model
from gangline.dra import Allocator, Compile, NodeVerdict, Selectors, SliceTable, Standing, Usage, compile_selector
from gangline.errors import InvalidObject
from gangline.explain.case import converted, load_cluster
from gangline.explain.report import Report, explain
from gangline.model.resource_claims import ResourceClaim
from gangline.model.resource_slices import DeviceClass, ResourceSlice
from gangline.profile.assembly import judging_runtimes
from gangline.profile.registry import Catalog
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache

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

    `case` holds lists of objects by lower-case plural (nodes, pods, pvcs, ...) and the pod to place under `pod`.
    `_gates` has the feature gates that are not at their default. `_profiles` has the profiles to score:
    default-scheduler, most-allocated, rtcr or custom. Raises GanglineError for an object that cannot be used.
    """
    cluster = load_cluster(case)
    profiles = _case_profiles(bool(case.get("_gates", {}).get("TaintTolerationComparisonOperators")))
    first, *others = profiles.profiles
    judging = _judging(profiles, [first], cluster)
    pod = cluster.record(converted(case["pod"], model.Pod, "pod"))
    report = explain(judging[first.scheduler_name], pod)
    result: dict[str, Any] = {"feasible": report.feasible, "filter": _filters(report), "message": report.message}
    if len(report.feasible) > 1:
        wanted = case.get("_profiles") or [profile.scheduler_name for profile in profiles.profiles]
        judging |= _judging(profiles, [each for each in others if each.scheduler_name in wanted], cluster)
        reports = {name: explain(judging[name], pod) for name in wanted if name in judging}
        result["scores"] = {name: _scores(each) for name, each in reports.items()}
        result["totals"] = {
            name: {node.name: node.total for node in each.nodes if node.total is not None}
            for name, each in reports.items()
        }
    return result


def selects(expression: str, device: Mapping[str, Any]) -> bool:
    """Whether a CEL selector selects a device, given as driver, attributes and capacity as in a ResourceSlice.

    Raises ExpressionError for an expression that does not compile, or fails on this device.
    """
    return cel.compile(expression)(cel.CelDevice.of(device))


@cache
def _case_profiles(comparison_operators: bool) -> config.SchedulerConfiguration:
    profiles = config.load(_CASE_PROFILES, "case profiles")
    return _with_comparison_operators(profiles) if comparison_operators else profiles


def _judging(
    configuration: config.SchedulerConfiguration, profiles: Sequence[config.Profile], cluster: Cache
) -> dict[str, Runtime]:
    some = msgspec.structs.replace(configuration, profiles=tuple(profiles))
    return judging_runtimes(some, cluster, catalog=_catalog())


@cache
def _catalog() -> Catalog:
    return Catalog.discover()


def _with_comparison_operators(profiles: config.SchedulerConfiguration) -> config.SchedulerConfiguration:
    """The same profiles with the gate TaintTolerationComparisonOperators on."""
    args = config.PluginConfig("TaintToleration", {"enableComparisonOperators": True})
    changed = tuple(
        dataclasses.replace(profile, plugin_config=(*profile.plugin_config, args)) for profile in profiles.profiles
    )
    return msgspec.structs.replace(profiles, profiles=changed)


def allocate(case: dict[str, Any], compile_: Compile = compile_selector) -> dict[str, Any]:
    """By node: None, an error, or the allocation of each claim, as kube-scheduler's allocator answers.

    `case` has lists of nodes, deviceClasses, resourceSlices, allocatedClaims, and claims: the claims of one pod.
    `compile_` compiles selectors. Raises GanglineError for an object that cannot be used.
    """
    nodes = load_cluster({"nodes": case.get("nodes")}).nodes.view()
    slices = converted(case.get("resourceSlices") or [], list[ResourceSlice], "resourceSlices")
    classes = converted(case.get("deviceClasses") or [], list[DeviceClass], "deviceClasses")
    allocated = converted(case.get("allocatedClaims") or [], list[ResourceClaim], "allocatedClaims")
    claims = converted(case.get("claims") or [], list[ResourceClaim], "claims")
    table = SliceTable(slices, nodes)
    allocator = Allocator(
        Standing(table, Usage(allocated)),
        {each.metadata.name: each for each in classes},
        Selectors(table, compile_),
    )
    rows = {name: row for row, name in enumerate(nodes.names) if name}
    try:
        pod = allocator.ask(claims)
    except InvalidObject as error:
        return {"nodes": {name: {"error": str(error)} for name in rows}}
    return {"nodes": {name: _allocated(pod.on(row, name)) for name, row in rows.items()}}


def _allocated(verdict: NodeVerdict) -> Any:
    if verdict.error:
        return {"error": verdict.error}
    return None if verdict.allocations is None else [msgspec.to_builtins(each) for each in verdict.allocations]


def _filters(report: Report) -> dict[str, dict[str, str]]:
    """Node to code for every filter plugin that rejects a node."""
    table: dict[str, dict[str, str]] = {}
    for node in report.nodes:
        for rejection in node.rejections[int(node.narrowed) :]:
            table.setdefault(rejection.plugin, {})[node.name] = rejection.code.value
    return table


def _scores(report: Report) -> dict[str, dict[str, int]]:
    """Node to score for every plugin, for feasible nodes."""
    feasible = [node for node in report.nodes if not node.rejections]
    return {plugin: {node.name: node.scores[plugin] for node in feasible} for plugin in report.weights}
