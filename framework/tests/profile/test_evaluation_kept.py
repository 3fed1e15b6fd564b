"""What is kept per pod class never differs from what a fresh evaluation gives, whatever happened in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import NODE, PODS, SPECS, NodeView, PodInfo, ScoreColumn, default_normalize, hookimpl, model
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.testing import cluster, make_node, make_pod, make_runtime
from gangline.testing import random_clusters as some
from gangline.testing.deciding import answers
from gangline_plugins.balanced_allocation import NodeResourcesBalancedAllocation
from gangline_plugins.image_locality import ImageLocality
from gangline_plugins.node_affinity import NodeAffinity
from gangline_plugins.node_name import NodeName
from gangline_plugins.node_ports import NodePorts
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.node_unschedulable import NodeUnschedulable
from gangline_plugins.taint_toleration import TaintToleration

from . import histories


class Racks:
    """A score that is kept and normalised, so that it depends on which nodes are feasible."""

    name = "Racks"
    reads = NODE

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        return nodes.label("rack").equals("b") * 7.0 + nodes.label("zone").exists * 2.0

    @hookimpl
    def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
        return default_normalize(scores)


class Crowd:
    """A score of each attempt: how many pods are on a node, kept by nobody."""

    name = "Crowd"

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        return np.array([float(len(nodes.pods(i))) for i in range(len(nodes))])


class Company:
    """A score that is kept and follows the labels of the pods on a node."""

    name = "Company"
    reads = PODS

    def __init__(self) -> None:
        self.asked = 0

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        self.asked += 1
        named = [sum(pod.labels.get("app") == "x" for pod in nodes.pods(i).values()) for i in range(len(nodes))]
        return np.array(named, dtype=np.float64)


class Number(Company):
    """The same, but the score follows how many pods are on a node, which their labels do not change."""

    name = "Number"
    reads = SPECS

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        self.asked += 1
        return np.array([float(len(nodes.pods(i))) for i in range(len(nodes))])


PLUGINS: tuple[type[Any], ...] = (
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    Racks,
    Crowd,
    Company,
    Number,
)


def preferring(rack: str) -> model.Affinity:
    term = model.NodeSelectorTerm(match_expressions=[model.Requirement("rack", "In", [rack])])
    named = model.NodeSelectorTerm(match_fields=[model.Requirement("metadata.name", "In", ["n1"])])
    return model.Affinity(
        node_affinity=model.NodeAffinity(
            required=model.NodeSelector([term, named]) if rack == "a" else None,
            preferred=[model.PreferredSchedulingTerm(10, term), model.PreferredSchedulingTerm(3, named)],
        )
    )


def waiting_pods() -> list[model.Pod]:
    """One of each kind."""
    everything = [model.Toleration(operator="Exists")]
    ports = [model.Container(image="app:1", ports=[model.ContainerPort(host_port=80)])]
    only_n2 = model.NodeSelectorTerm(match_fields=[model.Requirement("metadata.name", "In", ["n2"])])
    return [
        make_pod("w0"),
        make_pod("w1", gpus=4, cpu=2, memory="1Gi"),
        make_pod("w2", cpu=1, tolerations=everything, affinity=preferring("b")),
        make_pod("w3", node_selector={"zone": "a"}, tolerations=everything),
        make_pod("w4", containers=ports, tolerations=everything[:1]),
        make_pod("w5", affinity=preferring("a")),
        make_pod("w6", resources={"example.com/thing1": 1}, tolerations=[model.Toleration(key="gpu", value="yes")]),
        make_pod(
            "w7",
            affinity=model.Affinity(
                node_affinity=model.NodeAffinity(required=model.NodeSelector(node_selector_terms=[only_n2]))
            ),
        ),
    ]


def check(kept: Runtime, cache: Cache, pods: Sequence[PodInfo]) -> None:
    fresh = make_runtime(cache, *PLUGINS)
    for pod in pods:
        assert answers(kept, pod) == answers(fresh, pod), pod.key
        assert diagnosed(kept, pod) == diagnosed(fresh, pod), pod.key


def diagnosed(runtime: Runtime, pod: PodInfo) -> list[tuple[str, list[int]]]:
    """By plugin, the verdicts on the nodes that are there."""
    found = runtime.evaluator.diagnose(runtime.filter(pod))
    return [(each.name, each.codes[found.nodes.alive].tolist()) for each in found.rejections]


@pytest.mark.parametrize(("plugin", "asks_again"), [(Company, True), (Number, False)])
def test_a_change_of_labels_alone_concerns_plugins_that_read_more_of_pods_than_specs(
    plugin: type[Company], asks_again: bool
) -> None:
    cache = cluster([make_node("a"), make_node("b")])
    cache.assume(cache.record(make_pod("p")), 0)
    runtime, pod = make_runtime(cache, plugin), cache.record(make_pod("w"))
    answers(runtime, pod)
    before = runtime.profile.plugins[plugin.name].asked

    cache.upsert_pod(cache.record(make_pod("p", node="a", labels={"app": "x"})))

    assert answers(runtime, pod) == answers(make_runtime(cache, plugin), pod)
    assert (runtime.profile.plugins[plugin.name].asked > before) is asks_again


@pytest.mark.parametrize("changes", [3, 100], ids=["some rows", "more than are looked up"])
def test_nodes_are_scored_when_scores_are_asked_for_and_not_while_they_are_only_filtered(changes: int) -> None:
    cache = cluster(make_node(f"n{row}") for row in range(100))
    runtime, pod = make_runtime(cache, Company), cache.record(make_pod("w"))
    answers(runtime, pod)
    answers(runtime, pod)
    before = runtime.profile.plugins["Company"].asked

    for row in range(changes):
        cache.upsert_pod(cache.record(make_pod(f"p{row}", node=f"n{row}", labels={"app": "x"})))
        runtime.filter(pod)

    assert runtime.profile.plugins["Company"].asked - before <= 1  # the scores may follow the first change at once
    assert answers(runtime, pod) == answers(make_runtime(cache, Company), pod)
    assert runtime.profile.plugins["Company"].asked - before <= 2


class Racked(Racks):
    """The same, but only the rack counts."""

    name = "Racked"

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        return np.where(nodes.label("rack").exists, 7.0, 0.0)


class Crowded(Crowd):
    """The same, but kept, and normalised."""

    name = "Crowded"
    reads = SPECS

    @hookimpl
    def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
        return default_normalize(scores)


@pytest.mark.parametrize("plugin", [Racked, Crowded])
def test_a_normalized_score_that_is_equal_on_all_nodes_again_decides_nothing_again(plugin: type[Any]) -> None:
    cache = cluster([make_node("a"), make_node("b"), make_node("c")])
    runtime, pod, placed = make_runtime(cache, plugin), cache.record(make_pod("w")), make_pod("p", node="b")

    def told() -> list[float]:
        """What the plugin says of node b, nothing while all nodes are equal."""
        filtered = runtime.filter(pod)
        runtime.choose(filtered)
        return runtime.evaluator.scores_at(filtered, 1)[1]

    for _ in range(2):
        assert told() == []
        if plugin is Racked:
            cache.upsert_node(make_node("b", labels={"rack": "x"}))
        else:
            cache.upsert_pod(cache.record(placed))
        assert told() == [100.0]
        cache.upsert_node(make_node("b"))
        cache.remove_pod(placed.metadata.uid)


@given(st.data())
def test_kept_verdicts_and_scores_equal_fresh_ones_after_any_history(data: st.DataObject) -> None:
    cache = cluster(data.draw(st.lists(some.nodes, max_size=4)))
    kept = make_runtime(cache, *PLUGINS)
    pods = [cache.record(pod) for pod in waiting_pods()]
    for _ in range(data.draw(st.integers(1, 6))):
        looked_at = data.draw(st.lists(st.sampled_from(pods), max_size=4))
        for pod in looked_at:
            answers(kept, pod)
        for pod in data.draw(st.lists(st.sampled_from(pods), max_size=4)):
            kept.filter(pod)
        for step in data.draw(st.lists(st.one_of(some.steps(), histories.relabelling()), max_size=5)):
            step(cache)

        check(kept, cache, pods)


@given(
    st.lists(some.nodes, min_size=2, max_size=4),
    st.lists(
        st.tuples(st.sampled_from(["place", "take", "look", "filter"]), st.integers(0, 7), st.integers(0, 7)),
        max_size=8,
    ),
)
def test_they_are_equal_inside_a_transaction_and_after_its_end(
    nodes: list[model.Node], steps: list[tuple[str, int, int]]
) -> None:
    cache = cluster(nodes)
    kept = make_runtime(cache, *PLUGINS)
    pods = [cache.record(pod) for pod in waiting_pods()]
    check(kept, cache, pods)
    with cache.transaction() as tx:
        for number, (what, i, j) in enumerate(steps):
            there = [pod for on in cache.nodes.pods_on for pod in on.values()]
            if what == "place":
                tx.place(cache.record(make_pod(f"if{number}", cpu=1, gpus=i % 3)), j % cache.nodes.size)
            elif what == "take" and there:
                tx.unplace(there[i % len(there)])
            elif what == "look":
                answers(kept, pods[i])
            elif what == "filter":
                kept.filter(pods[i])
        check(kept, cache, pods)

    check(kept, cache, pods)


@pytest.mark.parametrize("changes", [1, 40, 5000], ids=["one", "some", "more than are looked up"])
def test_many_changes_between_two_attempts_are_all_seen(changes: int) -> None:
    cache = cluster(some_node(i) for i in range(200))
    kept = make_runtime(cache, *PLUGINS)
    pods = [cache.record(pod) for pod in waiting_pods()]
    check(kept, cache, pods)

    for i in range(changes):
        cache.upsert_pod(cache.record(make_pod(f"p{i}", cpu=1, gpus=1, node=f"n{i % 200}")))

    check(kept, cache, pods)


def some_node(i: int) -> model.Node:
    return model.Node(
        metadata=model.ObjectMeta(name=f"n{i}", labels={"rack": "abc"[i % 3]}),
        status=model.NodeStatus(allocatable={"cpu": 64, "memory": "1Ti", "nvidia.com/gpu": 8, "pods": 110}),
    )


def test_the_best_node_of_many_is_known_after_a_few_have_changed() -> None:
    cache = cluster(make_node(f"n{row}") for row in range(2100))
    kept = make_runtime(cache, NodeResourcesFit, NodeResourcesBalancedAllocation)
    pod = cache.record(make_pod("p", cpu=1))
    assert [kept.choose(kept.filter(pod)) for _ in range(3)] == [0, 0, 0]

    for rows, best in (((0, 1), 2), ((2, 1000), 3), ((4, 5), 3), (range(3, 40), 40)):
        for row in rows:
            cache.upsert_pod(cache.record(make_pod(f"{best}-{row}", cpu=2, node=f"n{row}")))
        assert kept.choose(kept.filter(pod)) == best
    for name in ("2-0", "2-1"):
        cache.remove_pod(f"pod-default-{name}")
    assert kept.choose(kept.filter(pod)) == 0
