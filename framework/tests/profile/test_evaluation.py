"""One pod against all nodes: verdicts, scores, choice and messages, and what a broken plugin costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import (
    NODE,
    PODS,
    SKIP,
    SKIP_CLASS,
    Code,
    CodeColumn,
    Cycle,
    Narrow,
    NodeView,
    PluginError,
    PodInfo,
    Reason,
    ScoreColumn,
    StateKey,
    Status,
    codes,
    default_normalize,
    hookimpl,
    model,
    per_node,
    unschedulable,
)
from gangline.deadline import NO_DEADLINE
from gangline.profile.calling import check_of
from gangline.state.cache import Cache
from gangline.testing import cluster, make_node, make_pod, make_runtime, run_filter, run_score
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.taint_toleration import TaintToleration


class ByLabel:
    """Scores what the label says."""

    name = "ByLabel"
    reads = NODE

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        return nodes.label("score").integers()[0].astype(np.float64)


class Narrowing:
    """Narrows the nodes down to those in an annotation."""

    name = "Narrowing"
    reasons = (Reason("never"),)

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Narrow | Status | None:
        names = pod.annotations.get("names")
        return SKIP if names is None else Narrow(frozenset(names.split()))

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        return codes(nodes.full(False))


class KeptNarrowing(Narrowing):
    """The same, kept per pod class."""

    name = "KeptNarrowing"
    reads = NODE

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Narrow | Status | None:
        selector = pod.spec.node_selector
        return SKIP if selector is None else Narrow(frozenset(selector["names"].split()))


def scored(*scores: int) -> Cache:
    return cluster(make_node(f"n{i}", labels={"score": str(score)}) for i, score in enumerate(scores))


def broken(answer: Any, point: str, kept: bool, normalizes: bool = False) -> type[Any]:
    """A plugin that answers this, or raises it."""

    def give(self: Any, nodes: NodeView) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def normalize(self: Any, scores: ScoreColumn) -> Any:
        return give(self, scores)  # type: ignore[arg-type]  # not looked at

    fields: dict[str, Any] = {"name": "Broken", "reasons": (Reason("broken"),), "reads": NODE if kept else None}
    if normalizes:
        fields["score"] = hookimpl(lambda self, nodes: nodes.rows.astype(np.float64))
        fields["normalize_score"] = hookimpl(normalize)
    else:
        fields[point] = hookimpl(give)
    return type("Broken", (), fields)


def place_of(cache: Cache, *plugins: type[Any], pod: model.Pod | None = None, ties: int | None = None) -> str:
    source = random.Random(ties) if ties is not None else None
    runtime = make_runtime(cache, *plugins, ties=source)
    return cache.nodes.names[runtime.evaluator.choose(runtime.evaluator.filter(cache.record(pod or make_pod("p"))))]


def message(cache: Cache, pod: model.Pod, *plugins: type[Any]) -> str:
    runtime = make_runtime(cache, *plugins)
    return runtime.evaluator.diagnose(runtime.evaluator.filter(cache.record(pod))).message()


# Choice


def test_the_best_feasible_node_is_chosen() -> None:
    assert place_of(scored(10, 30, 20), ByLabel) == "n1"


def test_ties_are_broken_by_row_without_a_source_of_randomness() -> None:
    assert {place_of(scored(10, 30, 30, 30), ByLabel) for _ in range(5)} == {"n1"}


def test_ties_are_broken_at_random_among_the_best_alone() -> None:
    assert {place_of(scored(10, 30, 30, 30), ByLabel, ties=seed) for seed in range(60)} == {"n1", "n2", "n3"}


def test_a_weight_multiplies_the_score() -> None:
    class Other(ByLabel):
        name = "Other"

        @hookimpl
        def score(self, nodes: NodeView) -> ScoreColumn:
            return 100.0 - nodes.label("score").integers()[0].astype(np.float64)

    cache = scored(10, 30)
    chosen = []
    for weights in ({"ByLabel": 3}, {"Other": 3}):
        runtime = make_runtime(cache, ByLabel, Other, weights=weights)
        chosen.append(runtime.evaluator.choose(runtime.evaluator.filter(cache.record(make_pod("p")))))
        assert runtime.evaluator.weights() == {"ByLabel": 1, "Other": 1, **weights}

    assert chosen == [1, 0]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "each time"])
def test_scores_are_normalised_over_the_feasible_nodes_alone(kept: bool) -> None:
    class Normalized(ByLabel):
        name = "Normalized"
        reads = NODE if kept else None  # type: ignore[assignment]  # what is tried here

        @hookimpl
        def filter(self, nodes: NodeView) -> CodeColumn:
            return codes(nodes.unschedulable)

        reasons = (Reason("cordoned"),)

        @hookimpl
        def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
            return default_normalize(scores)

    cache = scored(10, 20)
    cache.upsert_node(make_node("best", labels={"score": "80"}, unschedulable=True))

    assert run_score(Normalized, make_pod("p"), cache) == {"n0": 50.0, "n1": 100.0}


def test_scores_of_no_nodes_are_none() -> None:
    assert run_score(ByLabel, make_pod("p"), cluster()) == {}


# Pre-filters


@pytest.mark.parametrize("plugin", [Narrowing, KeptNarrowing], ids=["each time", "kept"])
def test_narrowing_leaves_only_the_nodes_it_names(plugin: type[Any]) -> None:
    pod = make_pod("p", annotations={"names": "n1 gone"}, node_selector={"names": "n1 gone"})

    assert run_filter(plugin, pod, scored(1, 2)) == {
        "n0": (f"node(s) didn't satisfy plugin(s) [{plugin.name}]",),
        "n1": (),
    }


def test_narrowings_that_have_nothing_in_common_reject_the_pod() -> None:
    pod = make_pod("p", annotations={"names": "n0"}, node_selector={"names": "n1"})

    assert message(scored(1, 2), pod, Narrowing, KeptNarrowing) == (
        "0/2 nodes are available: node(s) didn't satisfy plugin(s) [KeptNarrowing Narrowing] simultaneously."
    )


def test_a_filter_that_is_skipped_is_not_called() -> None:
    class Skips(Narrowing):
        name = "Skips"

        @hookimpl
        def filter(self, nodes: NodeView) -> CodeColumn:
            raise AssertionError("called")

    assert run_filter(Skips, make_pod("p"), scored(1)) == {"n0": ()}


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "each time"])
def test_a_pod_that_pre_filter_rejects_has_no_feasible_node(kept: bool) -> None:
    class Rejects:
        name = "Rejects"
        reads = NODE if kept else None

        @hookimpl
        def pre_filter(self) -> Status:
            return unschedulable("not today", resolvable=False)

    cache = scored(1, 2)
    runtime = make_runtime(cache, Rejects)
    filtered = runtime.evaluator.filter(cache.record(make_pod("p")))
    diagnosis = runtime.evaluator.diagnose(filtered)

    assert not filtered.feasible.any() and diagnosis.plugins() == {"Rejects"}
    assert diagnosis.message() == "0/2 nodes are available: not today."
    assert not diagnosis.resolvable().any()


def test_the_first_rejection_in_profile_order_counts() -> None:
    def rejecting(name: str, reads: int | None) -> type[Any]:
        return type(
            name, (), {"name": name, "reads": reads, "pre_filter": hookimpl(lambda self: unschedulable(f"by {name}"))}
        )

    kept, fresh = rejecting("Kept", NODE), rejecting("Fresh", None)

    assert message(scored(1), make_pod("p"), kept, fresh) == "0/1 nodes are available: by Kept."
    assert message(scored(1), make_pod("p"), fresh, kept) == "0/1 nodes are available: by Fresh."


def test_a_plugin_skips_its_scores() -> None:
    class Skips(ByLabel):
        name = "Skips"

        @hookimpl
        def pre_score(self) -> Status:
            return SKIP

    assert run_score(Skips, make_pod("p"), scored(1, 2)) == {}


def test_what_pre_filter_writes_is_read_by_filter_and_score_on_every_attempt() -> None:
    key = StateKey[int]("wanted")

    class Remembers:
        name = "Remembers"
        reads = NODE
        reasons = (Reason("other"),)

        @hookimpl
        def pre_filter(self, cycle: Cycle, pod: PodInfo) -> None:
            cycle.write(key, pod.priority)

        @hookimpl
        def filter(self, cycle: Cycle, nodes: NodeView) -> CodeColumn:
            return codes(~nodes.label("score").equals(str(cycle.read(key))))

        @hookimpl
        def score(self, cycle: Cycle, nodes: NodeView) -> ScoreColumn:
            return np.full(len(nodes), float(cycle.read(key)))

    cache = scored(1, 2)
    runtime = make_runtime(cache, Remembers)
    pod = cache.record(make_pod("p", priority=7))
    assert not runtime.evaluator.filter(pod).feasible.any()

    cache.upsert_node(make_node("n1", labels={"score": "7"}))

    filtered = runtime.evaluator.filter(pod)
    assert filtered.feasible.tolist() == [False, True]
    assert runtime.evaluator.scores(filtered)["Remembers"].tolist() == [7.0]


# Messages


def test_the_message_counts_reasons_in_the_words_of_kube_scheduler() -> None:
    cache = cluster(
        [make_node("a", taints=["x:NoSchedule"]), make_node("b", taints=["y:NoExecute"]), make_node("c", cpu=1)]
    )

    assert message(cache, make_pod("p", cpu=2), TaintToleration, NodeResourcesFit) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)."
    )


def test_a_node_counts_for_the_first_plugin_that_rejects_it() -> None:
    cache = cluster([make_node("a", cpu=1, taints=["x:NoSchedule"])])
    runtime = make_runtime(cache, NodeResourcesFit, TaintToleration)
    diagnosis = runtime.evaluator.diagnose(runtime.evaluator.filter(cache.record(make_pod("p", cpu=2))))

    assert diagnosis.counts() == {"Insufficient cpu": 1} and diagnosis.plugins() == {"NodeResourcesFit"}
    assert [found[0] for found in diagnosis.all_of(0)] == ["NodeResourcesFit", "TaintToleration"]


def test_without_nodes_there_is_nothing_to_count() -> None:
    assert message(cluster(), make_pod("p"), NodeResourcesFit) == "no nodes available to schedule pods"


def test_deleted_nodes_do_not_count() -> None:
    cache = cluster([make_node("a", cpu=1), make_node("b", cpu=1)])
    cache.remove_node("a")

    assert message(cache, make_pod("p", cpu=2), NodeResourcesFit) == "0/1 nodes are available: 1 Insufficient cpu."


def test_only_nodes_that_fewer_pods_could_cure_are_resolvable() -> None:
    cache = cluster([make_node("full", cpu=2), make_node("small", cpu=1)], [make_pod("q", cpu=2, node="full")])
    runtime = make_runtime(cache, NodeResourcesFit)
    diagnosis = runtime.evaluator.diagnose(runtime.evaluator.filter(cache.record(make_pod("p", cpu=2))))

    assert diagnosis.resolvable().tolist() == [True, False]


# Broken plugins

WRONG_FILTERS: list[tuple[Any, str]] = [
    (None, "must return unsigned integers, one per node, not None"),
    (["a", "b"], "must return unsigned integers, one per node, not ['a', 'b']"),
    (np.zeros(2), "must return unsigned integers, one per node, not float64"),
    (
        np.zeros(2, dtype=np.bool_),
        "must return unsigned integers, one per node, not bool; codes(rejected) turns truth values into them",
    ),
    (np.zeros(3, dtype=np.uint8), "returned an array of shape (3,) for 2 nodes; one value per node is expected"),
    (np.zeros((2, 1), dtype=np.uint8), "returned an array of shape (2, 1) for 2 nodes; one value per node is expected"),
    (KeyError("x"), "KeyError: 'x'"),
]
WRONG_SCORES: list[tuple[Any, str]] = [
    (None, "must return numbers, one per node, not None"),
    (["a", "b"], "must return numbers, one per node: could not convert string to float: 'a'"),
    (np.zeros(3), "returned an array of shape (3,) for 2 nodes; one value per node is expected"),
    (np.array([1.0, 101.0]), "scores must be 0..100, got 1..101"),
    (np.array([-1.0, 1.0]), "scores must be 0..100, got -1..1"),
    (np.array([1.0, np.nan]), "scores must be 0..100, got nan..nan"),
    (ZeroDivisionError("oh"), "ZeroDivisionError: oh"),
]
IDS = ["none", "dtype", "shape", "four", "five", "six", "seven"]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "each time"])
@pytest.mark.parametrize(("answer", "why"), WRONG_FILTERS, ids=IDS[: len(WRONG_FILTERS)])
def test_a_filter_that_answers_nonsense_is_named(answer: Any, why: str, kept: bool) -> None:
    with pytest.raises(PluginError) as error:
        run_filter(broken(answer, "filter", kept), make_pod("p"), scored(1, 2))

    assert str(error.value) == f"plugin Broken at filter: {why}"


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "each time"])
@pytest.mark.parametrize(("answer", "why"), WRONG_SCORES, ids=IDS[: len(WRONG_SCORES)])
def test_a_score_that_is_nonsense_is_named_on_every_attempt(answer: Any, why: str, kept: bool) -> None:
    cache = scored(1, 2)
    runtime = make_runtime(cache, broken(answer, "score", kept))
    pod = cache.record(make_pod("p"))
    for _ in range(2):
        with pytest.raises(PluginError) as error:
            runtime.evaluator.choose(runtime.evaluator.filter(pod))

        assert str(error.value) == f"plugin Broken at score: {why}"


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "each time"])
@pytest.mark.parametrize("answer", [None, np.zeros(5), 3.0, ValueError("x")], ids=["none", "shape", "one", "raises"])
def test_normalising_to_nonsense_is_named(answer: Any, kept: bool) -> None:
    cache = scored(1, 2)

    with pytest.raises(PluginError, match=r"^plugin Broken at normalize_score: "):
        place_of(cache, broken(answer, "score", kept, normalizes=True))


@pytest.mark.parametrize(
    ("point", "answer", "why"),
    [
        ("pre_filter", True, "must return Status or Narrow or None, not True"),
        ("pre_filter", KeyError("x"), "KeyError: 'x'"),
        ("pre_score", "no", "must return Status or None, not 'no'"),
        ("pre_score", unschedulable("why not"), "why not"),
    ],
    ids=["pre_filter", "pre_filter raises", "pre_score", "pre_score rejects"],
)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "each time"])
def test_another_answer_than_a_verdict_is_named(point: str, answer: Any, why: str, kept: bool) -> None:
    plugin = type("Both", (ByLabel, broken(answer, point, kept)), {"name": "Both", "reads": NODE if kept else None})

    with pytest.raises(PluginError) as error:
        place_of(scored(1, 2), plugin)

    assert str(error.value) == f"plugin Both at {point}: {why}"


@pytest.mark.parametrize("change", ["node", "pods"])
@pytest.mark.parametrize("point", ["filter", "score"])
def test_a_plugin_that_breaks_on_a_few_nodes_only_is_named_too(point: str, change: str) -> None:
    answers: dict[str, Any] = {"filter": np.zeros(2, dtype=np.uint8), "score": np.zeros(2)}
    hooks = {point: hookimpl(lambda self, nodes: answers[point])}  # for all nodes, even when asked for one
    said = {"name": "Forgetful", "reads": NODE | PODS, "reasons": (Reason("never"),)}
    forgetful = type("Forgetful", (), {**said, **hooks})

    cache = scored(1, 2)
    runtime = make_runtime(cache, forgetful)
    pod = cache.record(make_pod("p"))
    runtime.evaluator.choose(runtime.evaluator.filter(pod))
    if change == "node":
        cache.upsert_node(make_node("n0"))
    else:
        cache.upsert_pod(cache.record(make_pod("q", node="n0")))

    with pytest.raises(
        PluginError, match=rf"^plugin Forgetful at {point}: returned an array of shape \(2,\) for 1 nodes"
    ):
        runtime.evaluator.filter(pod)


def test_verdicts_that_need_more_bits_later_keep_them() -> None:
    class Growing:
        """Few codes at first, a large one for a cordoned node."""

        name = "Growing"
        reads = NODE

        @hookimpl
        def filter(self, nodes: NodeView) -> CodeColumn:
            cordoned = nodes.unschedulable
            return codes(cordoned) if not cordoned.any() else np.where(cordoned, np.uint16(256), np.uint16(0))

        def explain(self, cycle: Cycle, pod: PodInfo, code: int) -> Sequence[Reason]:
            return (Reason(f"code {code}"),)

    cache = scored(1, 2)
    runtime = make_runtime(cache, Growing)
    pod = cache.record(make_pod("p"))
    assert runtime.evaluator.filter(pod).feasible.all()

    cache.upsert_node(make_node("n0", unschedulable=True))

    filtered = runtime.evaluator.filter(pod)
    assert filtered.feasible.tolist() == [False, True]
    assert runtime.evaluator.diagnose(filtered).counts() == {"code 256": 1}


def test_only_nodes_that_changed_are_evaluated_again() -> None:
    sizes: list[int] = []

    class Counts(ByLabel):
        name = "Counts"

        @hookimpl
        def score(self, nodes: NodeView) -> ScoreColumn:
            sizes.append(len(nodes))
            return np.zeros(len(nodes))

    cache = scored(*range(50))
    runtime = make_runtime(cache, Counts)
    for i in range(3):
        pod = cache.record(make_pod(f"p{i}", cpu=1))
        runtime.evaluator.choose(runtime.evaluator.filter(pod))
        cache.upsert_node(make_node(f"n{i}", labels={"score": "9"}))

    assert sizes == [50, 1, 1]


def test_scores_that_are_asked_for_once_are_dropped_for_those_of_the_next_pod() -> None:
    cache = scored(1, 2)
    evaluator = make_runtime(cache, ByLabel).evaluator
    once, again, last = (cache.record(make_pod(name, cpu=cpu)) for cpu, name in enumerate(("a", "b", "c"), start=1))

    for pod in (once, again, again, last):
        assert evaluator.choose(evaluator.filter(pod)) == 1

    kept = [evaluator.kept.entry(pod, NO_DEADLINE).scores is not None for pod in (once, again, last)]
    assert kept == [False, True, True]

    for pod in (once, last, once):
        assert evaluator.choose(evaluator.filter(pod)) == 1
    assert all(evaluator.kept.entry(pod, NO_DEADLINE).scores is not None for pod in (once, again, last))


@given(st.permutations(range(4)), st.lists(st.integers(0, 100), min_size=4, max_size=4))
def test_nodes_may_change_in_any_order_between_two_attempts(order: list[int], scores: list[int]) -> None:
    cache = scored(1, 2, 3, 4)
    runtime = make_runtime(cache, ByLabel)
    pod = cache.record(make_pod("p"))
    runtime.evaluator.choose(runtime.evaluator.filter(pod))

    for i in order:
        cache.upsert_node(make_node(f"n{i}", labels={"score": str(scores[i])}))

    filtered = runtime.evaluator.filter(pod)
    assert runtime.evaluator.choose(filtered) == scores.index(max(scores))
    assert runtime.evaluator.scores(filtered)["ByLabel"].tolist() == scores


def test_more_classes_than_there_is_room_for_are_forgotten_oldest_first() -> None:
    cache = scored(1, 2)
    runtime = make_runtime(cache, ByLabel)
    pods = [cache.record(make_pod("p", cpu=i + 1)) for i in range(20)]

    for pod in pods:
        runtime.evaluator.choose(runtime.evaluator.filter(pod))

    assert all(runtime.evaluator.choose(runtime.evaluator.filter(pod)) == 1 for pod in pods)


# Plain functions over one node


class PerNode:
    """Rejects and scores node by node."""

    name = "PerNode"

    @hookimpl
    @per_node
    def filter(self, pod: PodInfo, node: model.Node) -> bool | str | None:
        if node.metadata.name == "e":
            return cast(bool, np.True_)  # numpy's truth counts too
        answers: dict[str, bool | str | None] = {"a": None, "b": True, "c": False, "d": "too red"}
        return answers[node.metadata.name]

    @hookimpl
    @per_node
    def score(self, pod: PodInfo, node: model.Node) -> float:
        return float(ord(node.metadata.name) - ord("a"))


def test_a_function_over_one_node_filters_and_scores_all() -> None:
    cache = cluster(make_node(name) for name in "abcdex")
    cache.remove_node("x")

    assert run_filter(PerNode, make_pod("p"), cache) == {
        "a": (),
        "b": (),
        "c": ("node(s) were rejected by PerNode",),
        "d": ("too red",),
        "e": (),
    }
    assert run_score(PerNode, make_pod("p"), cache) == {"a": 0.0, "b": 1.0, "e": 4.0}


# Skipping


def asked_for(answer: Status) -> list[str]:
    """The pods of one class for which a plugin is asked that always gives this answer."""
    asked: list[str] = []

    class Skipping:
        name = "Skipping"
        reasons = (Reason("never"),)

        @hookimpl
        def pre_filter(self, pod: PodInfo) -> Status:
            asked.append(pod.name)
            return answer

        @hookimpl
        def filter(self, nodes: NodeView) -> CodeColumn:
            raise AssertionError("it is skipped")

    cache = scored(1, 2)
    runtime = make_runtime(cache, Skipping)
    for pod in [cache.record(make_pod(name)) for name in ("a", "b")]:
        assert runtime.evaluator.filter(pod).feasible.all()
    return asked


def test_what_skips_a_class_differs_by_value_from_what_skips_a_pod() -> None:
    assert SKIP != SKIP_CLASS
    assert asked_for(Status(Code.SKIP)) == ["a", "b"]
    assert asked_for(Status(Code.SKIP_CLASS)) == ["a"]


def test_an_attempt_keeps_what_plugins_have_said_about_its_pod() -> None:
    """A plugin may say something else about the next pod of a class, because objects have changed. Whoever has reserved
    something for the first pod is called to bind it all the same.
    """
    answers = iter([None, SKIP_CLASS])

    class Concerned:
        name = "Concerned"

        @hookimpl
        def pre_filter(self) -> Status | None:
            return next(answers)

    cache = scored(1, 2)
    evaluator = make_runtime(cache, Concerned).evaluator
    pods = [cache.record(make_pod(name)) for name in ("a", "b", "c")]
    first, second, third = [evaluator.filter(pod).cycle for pod in pods]

    assert (first.skipped, second.skipped, third.skipped) == (set(), {"Concerned"}, {"Concerned"})


@pytest.mark.parametrize("ignores", [True, False], ids=["ignores requests", "reads requests"])
def test_a_plugin_whose_answers_are_kept_skips_a_class_too(ignores: bool) -> None:
    class Kept:
        name = "Kept"
        reads = NODE
        ignores_requests = ignores

        @hookimpl
        def pre_filter(self, pod: PodInfo) -> Status:
            return SKIP_CLASS if pod.labels.get("skips") == "class" else SKIP

        @hookimpl
        def identity(self, pod: PodInfo) -> str | None:
            return pod.labels.get("skips")

    cache = scored(1, 2)
    evaluator = make_runtime(cache, Kept).evaluator
    of_class, of_pod = [cache.record(make_pod(of, labels={"skips": of})) for of in ("class", "pod")]

    for _ in range(2):
        assert evaluator.filter(of_class).cycle.skipped == {"Kept"}
        assert not evaluator.filter(of_pod).cycle.skipped


@pytest.mark.parametrize("point", ["pre_score", "bind", "permit"])
def test_only_a_pre_filter_may_skip_a_class(point: str) -> None:
    assert check_of(point)(Status(Code.SKIP_CLASS)) == "must not answer SkipClass"
    assert not check_of("pre_filter")(Status(Code.SKIP_CLASS))
