"""What plugins read of node annotations and of pods' labels and annotations is what their verdicts follow."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from gangline import NODE, Action, CodeColumn, EventHint, NodeView, PodInfo, Reason, ScoreColumn, hookimpl, on
from gangline.deadline import NO_DEADLINE
from gangline.kube.resources import NODES, PODS
from gangline.simulate import SimulatedCluster
from gangline.testing import cluster, make_node, make_pod, make_runtime

PURPOSE = "example.com/purpose"
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Purpose}]}}}]
"""


class Purpose:
    """Only nodes whose annotation names the purpose that the pod's annotation or label asks for."""

    name = "Purpose"
    reads = NODE
    reasons = (Reason("node(s) served another purpose", resolvable=False),)

    @hookimpl
    def events_to_register(self) -> list[EventHint]:
        return [on("nodes", Action.UPDATE_NODE_ANNOTATION)]

    @hookimpl
    def identity(self, pod: PodInfo) -> Hashable:
        return pod.annotations.get(PURPOSE) or pod.labels.get("purpose")

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        wanted = pod.annotations.get(PURPOSE) or pod.labels.get("purpose")
        if wanted is None:
            return np.zeros(len(nodes), dtype=np.uint8)
        return (~nodes.annotation(PURPOSE).equals(wanted)).astype(np.uint8)

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        return np.where(nodes.annotation(PURPOSE).exists, 50.0, 0.0)


def test_a_node_annotation_is_a_column() -> None:
    cache = cluster([make_node("a", annotations={PURPOSE: "training"}), make_node("b")])
    view = cache.nodes.view()

    column = view.annotation(PURPOSE)

    assert column.equals("training").tolist() == [True, False] and column.exists.tolist() == [True, False]
    cache.upsert_node(make_node("b", annotations={PURPOSE: "serving"}))
    assert cache.nodes.view().annotation(PURPOSE).equals("serving").tolist() == [False, True]
    cache.upsert_node(make_node("a"))
    assert cache.nodes.view().annotation(PURPOSE).exists.tolist() == [False, True]


def test_a_kept_verdict_follows_a_node_annotation() -> None:
    cache = cluster([make_node("a")])
    runtime = make_runtime(cache, Purpose)
    pod = cache.record(make_pod("p", annotations={PURPOSE: "training"}))
    assert not runtime.filter(pod).feasible.any()

    cache.upsert_node(make_node("a", annotations={PURPOSE: "training"}))

    assert runtime.filter(pod).feasible.tolist() == [True]


def test_a_pod_that_waits_is_tried_again_when_only_an_annotation_of_a_node_changes() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a"))
    plain.create(PODS, make_pod("p", annotations={PURPOSE: "training"}))

    async def story() -> float:
        async with plain.scheduling(PROFILE, plugins=[Purpose]):
            await plain.until(lambda: "another purpose" in plain.message("p"))
            metadata = {"name": "a", "annotations": {PURPOSE: "training"}}
            plain.server.apply_manifest({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
            return await plain.until(lambda: plain.bound() == {"p": "a"}, seconds=60.0)

    assert plain.play(story) < 15.0


def test_pods_of_one_class_are_judged_by_their_identity() -> None:
    cache = cluster(
        [make_node("a", annotations={PURPOSE: "training"}), make_node("b", annotations={PURPOSE: "serving"})]
    )
    runtime = make_runtime(cache, Purpose)
    train = cache.record(make_pod("t", annotations={PURPOSE: "training"}))
    serve = cache.record(make_pod("s", annotations={PURPOSE: "serving"}))
    by_label = cache.record(make_pod("l", labels={"purpose": "serving"}))
    any_ = cache.record(make_pod("x"))

    assert train.cls is serve.cls is any_.cls
    feasible = [runtime.filter(pod).feasible.tolist() for pod in (train, serve, by_label, any_)]

    assert feasible == [[True, False], [False, True], [False, True], [True, True]]


def test_what_scores_take_is_counted_for_pods_told_apart_by_what_is_declared() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(1000))
    evaluator = make_runtime(cache, Purpose).evaluator
    pod = cache.record(make_pod("p", annotations={PURPOSE: "training"}))
    evaluator.ranking(evaluator.filter(pod))
    once = evaluator.kept.entries.bytes

    evaluator.ranking(evaluator.filter(pod))

    entry = evaluator.kept.entry(pod, NO_DEADLINE)
    assert entry.scores is not None
    leaders = evaluator.kept.leaders(entry, entry.scores)
    ranked = entry.scores.ranked
    assert ranked is not None and len(ranked) == len(leaders.rows) == 1000
    columns = (entry.scores.base, ranked, *entry.scores.columns, np.array(leaders.rows))
    assert evaluator.kept.entries.bytes - once >= sum(column.nbytes for column in columns)
