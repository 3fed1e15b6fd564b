"""Pods are alike exactly when no plugin can tell them apart; what is kept for one holds for all that are like it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline import (
    NODE,
    PODS,
    Changes,
    CodeColumn,
    Handle,
    KeptColumns,
    NodeView,
    PluginError,
    PodInfo,
    Reason,
    ScoreColumn,
    codes,
    hookimpl,
    model,
)
from gangline.kube.resources import GPU_CLAIMS, PVCS
from gangline.profile.evaluation import Evaluator
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.state.changes import OWN
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline.testing import random_clusters as some
from gangline.testing.deciding import answers
from gangline.wire.custom_resources import (
    CLAIM,
    ClaimDevices,
    GpuClaim,
    GpuClaimSpec,
)
from gangline_plugins.balanced_allocation import NodeResourcesBalancedAllocation
from gangline_plugins.counting.inter_pod_affinity import InterPodAffinity
from gangline_plugins.counting.pod_topology_spread import PodTopologySpread
from gangline_plugins.defragmentation import Defragmentation
from gangline_plugins.dynamic_resources import DynamicResources
from gangline_plugins.gpu.claim import GpuClaim as GpuClaimPlugin
from gangline_plugins.gpu.nvlink_topology import NVLinkTopology
from gangline_plugins.gpu.scheduling_map import GpuSchedulingMap
from gangline_plugins.node_affinity import NodeAffinity
from gangline_plugins.node_declared_features import NodeDeclaredFeatures
from gangline_plugins.node_name import NodeName
from gangline_plugins.node_ports import NodePorts
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.node_unschedulable import NodeUnschedulable
from gangline_plugins.reservation import Reservation
from gangline_plugins.taint_toleration import TaintToleration
from gangline_plugins.topology_annotations.plugin import TopologyAnnotations
from gangline_plugins.volumes.volume_binding import VolumeBinding

from . import differing_pods as differing
from .differing_pods import PURPOSE
from .histories import Rents, Step, begun, steps


class Tenants:
    """Nodes that somebody has rented are for pods of that owner; it reads labels, annotations, owners and a column."""

    name = "Tenants"
    reads = NODE
    reasons = (Reason("node(s) were rented"), Reason("node(s) served another purpose"))

    def __init__(self, args: None, handle: Handle) -> None:
        self._rents = handle.state.shared(Rents)
        self.reads_own = (self._rents.changed,)
        self._matches = KeptColumns(self._evaluate, 2**20)

    def _evaluate(self, purpose: str, nodes: NodeView) -> tuple[Any]:
        return (nodes.label("rack").equals(purpose),)

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        return self._owner(pod), pod.labels.get("app"), annotations.get(PURPOSE)

    def _owner(self, pod: PodInfo) -> int:
        return int(pod.controller.uid) if pod.controller is not None else -1

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        rents, purpose = self._rents.of(nodes), pod.annotations.get(PURPOSE)
        other = ~self._matches.of(purpose, nodes)[0][nodes.index] if purpose else nodes.full(False)
        return codes((rents >= 0) & (rents != self._owner(pod)), other)

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        return np.where(self._rents.of(nodes) >= 0, 100.0, 50.0 if "app" in pod.labels else 0.0)


PLUGINS: tuple[type[Any], ...] = (
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    NodeDeclaredFeatures,
    NodeResourcesBalancedAllocation,
    DynamicResources,
    InterPodAffinity,
    PodTopologySpread,
    TopologyAnnotations,
    GpuSchedulingMap,
    GpuClaimPlugin,
    NVLinkTopology,
    Reservation,
    VolumeBinding,
    Defragmentation,
    Tenants,
)


OF_THE_PAST = {"Recovery"}
"""Plugins whose scores count what has happened, which a profile that knows nothing yet cannot know."""


def owned(name: str, uid: str) -> model.Pod:
    pod = make_pod(name)
    pod.metadata.owner_references = [model.OwnerReference("ReplicaSet", "set", uid, "apps/v1", controller=True)]
    return pod


def uncached(cache: Cache, handle: FakeHandle, plugins: tuple[type[Any], ...] = PLUGINS) -> Runtime:
    """A profile that knows nothing yet."""
    fresh = FakeHandle(cache)
    fresh.fake_clock = fresh.clock = handle.fake_clock
    return make_runtime(cache, *plugins, handle=fresh)


def test_the_pods_differ_in_each_field_of_the_spec() -> None:
    assert set(differing.SPEC) == set(model.PodSpec.__struct_fields__)


def test_all_plugins_with_verdicts_that_are_kept_or_with_identities_are_held_against_decisions_without() -> None:
    found = [each.load() for each in entry_points(group="gangline.plugins")]

    assert {each.name for each in found if has_identity(each)} <= {each.name for each in PLUGINS} | OF_THE_PAST


def has_identity(plugin: type[Any]) -> bool:
    return getattr(plugin, "reads", None) is not None or hasattr(plugin, "identity")


@settings(max_examples=settings().max_examples * 2 // 5)
@given(st.data())
def test_a_decision_with_what_is_kept_is_that_without_it_after_any_history(data: st.DataObject) -> None:
    cache = begun(data.draw(st.lists(some.nodes, max_size=4)))
    handle = FakeHandle(cache)
    kept = make_runtime(cache, *PLUGINS, handle=handle)
    waiting = [cache.record(pod) for pod in data.draw(differing.families())]
    for _ in range(data.draw(st.integers(1, 5))):
        for step in data.draw(st.lists(steps(), max_size=5)):
            step(cache, handle)
        fresh = uncached(cache, handle)

        for pod in data.draw(st.lists(st.sampled_from(waiting), min_size=4, max_size=8)):
            assert answers(kept, pod) == answers(fresh, pod), pod.key


@settings(max_examples=settings().max_examples // 2)
@given(differing.families(), st.lists(some.nodes, max_size=4), st.lists(steps(), max_size=8), st.booleans())
def test_pods_are_alike_exactly_when_no_plugin_tells_them_apart(
    family: list[model.Pod], nodes: list[model.Node], history: list[Step], with_tenants: bool
) -> None:
    plugins = PLUGINS if with_tenants else PLUGINS[:-1]  # Tenants tells pods apart by a label that other plugins read
    cache = begun(nodes)
    handle = FakeHandle(cache)
    evaluator = make_runtime(cache, *plugins, handle=handle).evaluator
    for step in history:
        step(cache, handle)
    by_likeness: dict[Hashable, list[PodInfo]] = {}
    pods = list(map(cache.record, family))
    for pod, likeness in zip(pods, evaluator.likenesses(pods, list(map(handle.workload, pods))), strict=True):
        by_likeness.setdefault(likeness, []).append(pod)

    for alike in by_likeness.values():
        first = unnamed(uncached(cache, handle, plugins), alike[0])
        assert [pod.name for pod in alike[1:] if unnamed(uncached(cache, handle, plugins), pod) != first] == []


def unnamed(runtime: Runtime, pod: PodInfo) -> dict[str, Any]:
    """The answers about a pod, without its name: the claims of ephemeral volumes are named after their pod."""
    found = answers(runtime, pod)
    message = found["message"].replace(f'"{pod.name}-', '"').replace(f"/{pod.name}-", "/")
    return {**found, "message": message.replace(f"pod {pod.key} ", "the pod ")}


def test_pods_whose_ephemeral_volumes_wait_for_their_claims_are_alike() -> None:
    """Found by the test above: the messages name the claims, and claims that are missing or deleted were one reason."""
    cache = cluster([make_node("n")])
    scratch = model.Volume("data", ephemeral=model.EphemeralVolume())
    going = model.PersistentVolumeClaim(
        model.ObjectMeta("c-data", "default", deletion_timestamp="2026-01-01T00:00:00Z"),
        model.PersistentVolumeClaimSpec(),
    )
    cache.store(PVCS).upsert(going)
    evaluator = make_runtime(cache, *PLUGINS, handle=FakeHandle(cache)).evaluator

    a, b, c = pods = [cache.record(make_pod(name, volumes=[scratch])) for name in "abc"]

    likeness = dict(zip("abc", evaluator.likenesses(pods, [{}] * 3), strict=True))
    assert likeness["a"] == likeness["b"] != likeness["c"]
    runtime = uncached(cache, FakeHandle(cache))
    assert unnamed(runtime, a) == unnamed(runtime, b) != unnamed(runtime, c)


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        (make_pod("a"), make_pod("b"), True),
        (make_pod("a"), make_pod("b", labels={"unread": "x"}), True),
        (make_pod("a"), make_pod("b", annotations={"unread": "x"}), True),
        (make_pod("a", labels={"app": "x"}), make_pod("b", labels={"app": "x", "unread": "x"}), True),
        (make_pod("a"), make_pod("b", labels={"app": "x"}), False),
        (make_pod("a"), make_pod("b", annotations={PURPOSE: "x"}), False),
        (make_pod("a"), make_pod("b", annotations={CLAIM: "c"}), False),
        (make_pod("a"), make_pod("b", cpu=1), False),
        (make_pod("a"), owned("b", "1"), False),
        (owned("a", "1"), owned("b", "1"), True),
        (owned("a", "0"), owned("b", "1"), False),
    ],
)
def test_only_what_is_read_of_them_tells_pods_apart(one: model.Pod, other: model.Pod, are_alike: bool) -> None:
    cache = cluster([make_node("n")])
    handle = FakeHandle(cache)
    evaluator = make_runtime(cache, *PLUGINS, handle=handle).evaluator

    pods = [cache.record(one), cache.record(other)]

    likenesses = evaluator.likenesses(pods, list(map(handle.workload, pods)))
    assert (likenesses[0] == likenesses[1]) is are_alike


def test_pods_with_claims_that_say_the_same_share_what_is_kept() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(4))
    for name, count in (("a", 2), ("b", 2), ("c", 3)):
        spec = GpuClaimSpec(devices=ClaimDevices(count=count))
        cache.store(GPU_CLAIMS).upsert(GpuClaim(model.ObjectMeta(name=name, namespace="default"), spec))
    evaluator = make_runtime(cache, GpuClaimPlugin).evaluator

    alike = [cache.record(make_pod(f"pod-{name}", annotations={CLAIM: name})) for name in "abc"]
    for pod in alike:
        evaluator.filter(pod)

    assert len(evaluator.kept.entries) == 2


def test_what_is_kept_stays_within_its_bound_however_many_identities_there_are() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(100))
    handle = FakeHandle(cache)
    profile = make_runtime(cache, Tenants, handle=handle).profile
    evaluator = Evaluator(profile, cache.nodes, None, kept_bytes=2**20)

    for number in range(1000):
        pod = cache.record(make_pod(f"p{number}", annotations={PURPOSE: f"{number:02}" * 500}))
        for _ in range(2):  # scores that are asked for again are kept
            evaluator.choose(evaluator.filter(pod))

    assert evaluator.kept.entries.bytes <= 2**20
    assert 16 <= len(evaluator.kept.entries) < 200


@pytest.mark.parametrize("kind", [NODE, PODS, OWN, NODE | PODS])
def test_a_row_in_its_own_log_that_no_node_has_harms_nobody(kind: int) -> None:
    cache = cluster([make_node("a")])
    runtime = make_runtime(cache, Tenants)
    pod = cache.record(make_pod("p"))
    assert runtime.filter(pod).feasible.tolist() == [True]

    cache.shared(Rents).changed.note(77, kind)

    assert runtime.filter(pod).feasible.tolist() == [True]


def test_a_change_in_a_column_of_its_own_concerns_the_plugin_that_reads_it_alone() -> None:
    asked: list[int] = []

    class Other:
        name = "Other"
        reads = NODE | PODS

        @hookimpl
        def score(self, nodes: NodeView) -> ScoreColumn:
            asked.append(len(nodes))
            return np.zeros(len(nodes))

    cache = cluster(make_node(f"n{i}") for i in range(10))
    runtime = make_runtime(cache, Tenants, Other)
    pod = cache.record(make_pod("p"))
    runtime.choose(runtime.filter(pod))
    cache.shared(Rents).rent(3, 1)

    filtered = runtime.filter(pod)

    assert not filtered.feasible[3] and filtered.feasible.sum() == 9
    assert asked == [10]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"reads_own": [Changes()]}, "reads_own is a tuple of Changes"),
        ({"reads_own": (1,)}, "reads_own is a tuple of Changes"),
        ({"reads_own": (Changes(),), "reads": None}, "declares reads_own without reads"),
        ({"errors_from": "2"}, "errors_from is a code of filter"),
        ({"errors_from": 0}, "errors_from is a code of filter"),
        ({"reads_pod_labels": ("a",)}, "reads_pod_labels is no more"),
    ],
)
def test_what_is_declared_wrongly_is_an_error_at_load(wrong: dict[str, Any], why: str) -> None:
    plugin = type("Wrong", (Tenants,), {"name": "Wrong", "__init__": lambda self: None, **wrong})

    with pytest.raises(PluginError, match=why):
        make_runtime(cluster(), plugin)


@pytest.mark.parametrize("broken", ["hash", "equality"])
def test_an_identity_that_cannot_be_compared_is_its_plugins_fault(broken: str) -> None:
    class Identified:
        def __hash__(self) -> int:
            if broken == "hash":
                raise RuntimeError("no hash")
            return 1

        def __eq__(self, other: object) -> bool:
            raise SystemExit("no equality")

    class Odd:
        name = "Odd"
        reads = NODE
        reasons = ()

        @hookimpl
        def identity(self, pod: PodInfo) -> Hashable:
            return Identified()

        @hookimpl
        def filter(self, nodes: NodeView) -> CodeColumn:
            return codes(nodes.full(False))

    cache = cluster([make_node("a")])
    runtime = make_runtime(cache, Odd)

    with pytest.raises(PluginError, match=f"Odd at identity: .*no {broken}"):
        runtime.filter(cache.record(make_pod("p")))
