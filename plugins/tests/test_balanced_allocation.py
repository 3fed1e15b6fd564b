"""NodeResourcesBalancedAllocation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import PluginError, model
from gangline.testing import GPU, Cache, FakeHandle, cluster, make_node, make_pod, make_runtime, run_score
from gangline.testing import random_clusters as some
from gangline_plugins.balanced_allocation import Args, NodeResourcesBalancedAllocation
from gangline_plugins.resource_scoring import FEW, ResourceSpec

PLUGIN = NodeResourcesBalancedAllocation


def score(node_has: model.Pod | None, pod: model.Pod, args: Args | None = None) -> float:
    cache = cluster([make_node("a", cpu=10, memory="100", gpus=10)], [node_has] if node_has else [])
    return run_score(PLUGIN, pod, cache, args)["a"]


@pytest.mark.parametrize(
    ("used", "wanted", "expected"),
    [
        ((0, 0), (5, 50), 75.0),
        ((0, 0), (10, 0), 50.0),
        ((4, 0), (1, 40), 82.0),
        ((0, 0), (5, 0), 62.0),
    ],
    ids=["stays even", "all of one", "becomes even", "half of one"],
)
def test_a_pod_that_leaves_the_node_more_even_is_better_off_there(
    used: tuple[int, int], wanted: tuple[int, int], expected: float
) -> None:
    there = make_pod("q", cpu=used[0], memory=used[1], node="a") if any(used) else None

    assert score(there, make_pod("p", cpu=wanted[0], memory=wanted[1])) == expected


def test_a_pod_that_asks_for_none_of_the_resources_is_not_scored() -> None:
    assert run_score(PLUGIN, make_pod("p", gpus=1), cluster([make_node("a")])) == {}


def test_devices_count_where_they_are_configured_and_asked_for() -> None:
    args = Args(resources=[ResourceSpec("cpu"), ResourceSpec(GPU)])

    assert score(None, make_pod("p", cpu=5, gpus=5), args) == 75.0
    assert score(None, make_pod("p", cpu=5, gpus=1), args) < 75.0


def test_a_resource_that_a_node_lacks_does_not_count_there() -> None:
    cache = cluster([make_node("with", cpu=10, gpus=10), make_node("without", cpu=10, gpus=0)])
    args = Args(resources=[ResourceSpec("cpu"), ResourceSpec(GPU)])

    scores = run_score(PLUGIN, make_pod("p", cpu=5, gpus=1), cache, args)

    assert scores["without"] == 75.0 and scores["with"] < 75.0


def test_a_resource_that_is_named_twice_is_refused_at_load() -> None:
    args = Args(resources=[ResourceSpec("cpu"), ResourceSpec("cpu")])

    with pytest.raises(PluginError, match="a resource is named twice"):
        make_runtime(cluster(), PLUGIN, args={PLUGIN.name: args})


@given(st.lists(some.steps(), max_size=25))
def test_what_is_kept_of_nodes_is_what_they_are(steps: list[some.Step]) -> None:
    cache = Cache()
    handle = FakeHandle(cache)
    long_lived = PLUGIN(Args(), handle)
    for number in range(FEW):  # besides those of the steps, so that all nodes are many
        cache.upsert_node(make_node(f"more-{number}", cpu=number, memory="3Gi"))
    pod = cache.record(make_pod("p", cpu=2, memory="3Gi"))

    for step in steps:
        step(cache)
        nodes = cache.nodes.view()
        assert long_lived.score(pod, nodes).tolist() == PLUGIN(Args(), handle).score(pod, nodes).tolist()
