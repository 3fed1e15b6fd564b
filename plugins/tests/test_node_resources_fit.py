"""NodeResourcesFit: what fits, why not, and which events help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import Action, PluginError, resources
from gangline.model import DeviceClass, DeviceClassSpec, ObjectMeta
from gangline.testing import GPU, FakeHandle, cluster, make_node, make_pod, make_runtime, run_filter, run_score
from gangline_plugins.extended_resources import ExtendedResources
from gangline_plugins.node_resources_fit import Args, NodeResourcesFit
from gangline_plugins.resource_scoring import ResourceSpec, ScoringStrategy, Shape, ShapePoint

THING = "example.com/thing"


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=5),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_a_pod_fits_where_everything_it_asks_for_is_free(
    nodes: list[tuple[int, int, int]], pods: list[tuple[int, int, int]], wanted: tuple[int, int]
) -> None:
    cache = cluster(make_node(f"n{i}", cpu=cpu, gpus=gpus, pods=slots) for i, (cpu, gpus, slots) in enumerate(nodes))
    for i, (node, cpu, gpus) in enumerate(pods):
        cache.upsert_pod(cache.record(make_pod(f"q{i}", cpu=cpu, gpus=gpus, node=f"n{node}")))

    reasons = run_filter(NodeResourcesFit, make_pod("p", cpu=wanted[0], gpus=wanted[1]), cache)

    for i, (cpu, gpus, slots) in enumerate(nodes):
        here = [pod for pod in pods if pod[0] == i]
        expected = []
        if len(here) + 1 > slots:
            expected.append("Too many pods")
        if wanted[0] and wanted[0] > cpu - sum(pod[1] for pod in here):
            expected.append("Insufficient cpu")
        if wanted[1] and wanted[1] > gpus - sum(pod[2] for pod in here):
            expected.append(f"Insufficient {GPU}")
        assert sorted(reasons[f"n{i}"]) == sorted(expected)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=5),
    st.lists(st.integers(0, 4), max_size=6),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.booleans(),
)
def test_a_node_alone_gets_the_verdict_that_it_gets_among_others(
    nodes: list[tuple[int, int, int]], pods: list[int], wanted: tuple[int, int], is_served: bool
) -> None:
    cache = cluster(make_node(f"n{i}", cpu=cpu, gpus=gpus, pods=slots) for i, (cpu, gpus, slots) in enumerate(nodes))
    for i, node in enumerate(node for node in pods if node < len(nodes)):
        cache.upsert_pod(cache.record(make_pod(f"q{i}", cpu=1, gpus=1, node=f"n{node}")))
    handle = FakeHandle(cache)
    if is_served:
        cache.store(resources.DEVICE_CLASSES).upsert(
            DeviceClass(ObjectMeta("gpu"), DeviceClassSpec(extended_resource_name=GPU))
        )
        handle.state.shared(ExtendedResources, handle.state).give_out_in(handle)
    plugin = NodeResourcesFit(Args(), handle)
    pod = cache.record(make_pod("p", cpu=wanted[0], gpus=wanted[1]))

    together = plugin.filter(pod, cache.nodes.view()).tolist()

    assert [plugin.filter(pod, cache.nodes.view().at_row(row)).tolist() for row in range(len(nodes))] == [
        [code] for code in together
    ]
    for size in (len(nodes) + 1, 65):  # a few in any order, and many, which are judged one resource after the other
        rows = np.resize(np.arange(len(nodes))[::-1], size)
        assert plugin.filter(pod, cache.nodes.view().at(rows)).tolist() == [together[row] for row in rows.tolist()]


def test_eviction_helps_where_the_node_is_full_and_not_where_it_is_too_small() -> None:
    cache = cluster(
        [make_node("small", cpu=1), make_node("full", cpu=4), make_node("slots", pods=1)],
        [make_pod("q", cpu=3, node="full"), make_pod("r", node="slots")],
    )
    evaluator = make_runtime(cache, NodeResourcesFit).evaluator

    diagnosis = evaluator.diagnose(evaluator.filter(cache.record(make_pod("p", cpu=2))))

    assert diagnosis.resolvable().tolist() == [False, True, True]
    assert diagnosis.message() == "0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu."


@pytest.mark.parametrize(
    "args",
    [Args(ignored_resources=[THING]), Args(ignored_resource_groups=["example.com"])],
    ids=["resource", "group"],
)
def test_ignored_resources_are_not_looked_at(args: Args) -> None:
    cache, pod = cluster([make_node("a")]), make_pod("p", resources={THING: 1})

    assert run_filter(NodeResourcesFit, pod, cache) == {"a": (f"Insufficient {THING}",)}
    assert run_filter(NodeResourcesFit, pod, cache, args) == {"a": ()}


def test_a_resource_that_no_node_ever_had_fits_nowhere_until_one_has_it() -> None:
    cache, pod = cluster([make_node("a")]), make_pod("p", resources={THING: 2})
    assert run_filter(NodeResourcesFit, pod, cache) == {"a": (f"Insufficient {THING}",)}

    cache.upsert_node(make_node("a", resources={THING: 2}))

    assert run_filter(NodeResourcesFit, pod, cache) == {"a": ()}


def hint(resource: str, action: Action) -> Any:
    plugin = make_runtime(cluster(), NodeResourcesFit).profile.plugins["NodeResourcesFit"]
    return next(e.hint for e in plugin.events_to_register() if e.event.resource == resource and e.event.action & action)


def test_only_a_pod_that_leaves_or_shrinks_in_what_is_wanted_helps() -> None:
    cache = cluster()
    wants = cache.record(make_pod("p", cpu=1))
    large, small, gpu = (cache.record(make_pod("q", **fields)) for fields in ({"cpu": 2}, {"cpu": 1}, {"gpus": 1}))  # type: ignore[arg-type]  # one field at a time
    helps = hint("pods", Action.DELETE)

    assert helps(wants, gpu, None) and helps(wants, large, small)
    assert not helps(wants, small, large) and not helps(wants, gpu, cache.record(make_pod("q")))


def test_only_a_node_that_is_large_enough_helps() -> None:
    helps, pod = hint("nodes", Action.ADD), cluster().record(make_pod("p", cpu=4, gpus=2))

    assert helps(pod, None, make_node("a"))
    assert not helps(pod, None, make_node("a", cpu=2)) and not helps(pod, None, make_node("a", gpus=0))


# Scores: 8 cores and 64Gi, of which the pod takes 2 cores and 32Gi; the other node has a pod of 4 cores


def scores(strategy: ScoringStrategy | None, **fields: Any) -> list[float]:
    cache = cluster(
        [make_node(name, cpu=8, memory="64Gi") for name in "ab"], [make_pod("q", cpu=4, memory="16Gi", node="b")]
    )
    pod = make_pod("p", **{"cpu": 2, "memory": "32Gi", **fields})
    args = Args(scoring_strategy=strategy) if strategy else Args()
    return list(run_score(NodeResourcesFit, pod, cache, args).values())


CPU, MEMORY = ResourceSpec("cpu"), ResourceSpec("memory")
LINE = Shape([ShapePoint(0, 0), ShapePoint(50, 10), ShapePoint(100, 2)])


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (None, [(75 + 50) // 2, 25.0]),
        (ScoringStrategy("LeastAllocated", [ResourceSpec("cpu", 3), MEMORY]), [(3 * 75 + 50) // 4, 25.0]),
        (ScoringStrategy("MostAllocated", [CPU, MEMORY]), [(25 + 50) // 2, 75.0]),
        (ScoringStrategy("MostAllocated", [CPU]), [25.0, 75.0]),
        (ScoringStrategy("RequestedToCapacityRatio", [CPU], LINE), [50.0, 60.0]),
        (ScoringStrategy("LeastAllocated", [ResourceSpec(THING)]), [0.0, 0.0]),
    ],
    ids=["default", "weights", "most", "most cpu", "ratio", "a resource nobody asks for"],
)
def test_nodes_are_rated_by_the_strategy(strategy: ScoringStrategy | None, expected: list[float]) -> None:
    assert scores(strategy) == expected


def test_a_pod_that_asks_for_nothing_counts_with_the_defaults() -> None:
    assert scores(ScoringStrategy("LeastAllocated", [CPU]), cpu=0, memory=0) == [98.0, 48.0]


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        (ScoringStrategy(resources=[ResourceSpec("cpu", 101)]), "the weight of resource cpu must be 1..100, not 101"),
        (ScoringStrategy(resources=[CPU, CPU]), "a resource is named twice"),
        (
            ScoringStrategy("RequestedToCapacityRatio", [CPU]),
            "requestedToCapacityRatio.shape needs at least one point",
        ),
        (
            ScoringStrategy("RequestedToCapacityRatio", [CPU], Shape([ShapePoint(50, 1), ShapePoint(50, 2)])),
            "shape points must be sorted by rising utilization",
        ),
        (
            ScoringStrategy("RequestedToCapacityRatio", [CPU], Shape([ShapePoint(50, 11)])),
            "shape points need a utilization of 0..100 and a score of 0..10",
        ),
    ],
    ids=["weight", "twice", "no shape", "unsorted", "score"],
)
def test_a_strategy_that_makes_no_sense_is_refused_at_load(strategy: ScoringStrategy, why: str) -> None:
    with pytest.raises(PluginError) as error:
        make_runtime(cluster(), NodeResourcesFit, args={"NodeResourcesFit": Args(scoring_strategy=strategy)})

    assert str(error.value) == f"plugin NodeResourcesFit: cannot be built: {why}"
