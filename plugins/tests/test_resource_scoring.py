"""Percentages are exact whole numbers, however large the amounts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import NodeView, PodInfo, ScoreColumn
from gangline.testing import GPU, Cache, FakeHandle, cluster, make_node, make_pod
from gangline_plugins.balanced_allocation import Args, NodeResourcesBalancedAllocation
from gangline_plugins.node_resources_fit import Args as FitArgs
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.resource_scoring import FEW, ResourceSpec, ScoringStrategy, ShapePoint, build_strategy, percent
from gangline_plugins.resource_scoring import _interpolate as interpolate


@given(st.lists(st.tuples(st.integers(0, 2**56), st.integers(0, 2**56)), min_size=1, max_size=5))
def test_a_percentage_is_rounded_down_exactly(pairs: list[tuple[int, int]]) -> None:
    whole = np.array([max(pair) for pair in pairs], dtype=np.int64)
    part = np.array([min(pair) for pair in pairs], dtype=np.int64)

    expected = [100 * p // w if w else 0 for p, w in zip(part.tolist(), whole.tolist(), strict=True)]

    assert percent(part, whole).tolist() == expected


@given(st.integers(1, 2**45), st.integers(0, 100), st.sampled_from([-1, 0, 1]))
def test_a_percentage_is_exact_next_to_a_whole_one(whole: int, percentage: int, off: int) -> None:
    part = min(whole, max(0, whole * percentage // 100 + off))

    assert percent(np.array([part]), np.array([whole])).tolist() == [100 * part // whole]


def test_between_two_points_of_a_shape_lies_a_line_and_outside_it_is_flat() -> None:
    points = [(point.utilization, point.score) for point in (ShapePoint(20, 0), ShapePoint(40, 10), ShapePoint(50, 3))]

    assert [interpolate(points, x) for x in (0, 20, 30, 40, 45, 50, 100)] == [0, 0, 5, 10, 7, 3, 3]


AMOUNTS = st.one_of(st.integers(0, 4), st.integers(0, 2**40))
NODES = st.lists(st.tuples(AMOUNTS, AMOUNTS, st.integers(0, 8)), min_size=FEW + 1, max_size=FEW + 4)
Score = Callable[[PodInfo, NodeView], ScoreColumn]


def rated(kind: Literal["LeastAllocated", "MostAllocated"]) -> Score:
    rate = build_strategy(ScoringStrategy(kind, [ResourceSpec("cpu", 3), ResourceSpec("memory"), ResourceSpec(GPU, 7)]))
    return lambda pod, nodes: rate(pod.cls, nodes)


def balanced() -> Score:
    return NodeResourcesBalancedAllocation(Args(), FakeHandle(cluster([]))).score


@pytest.mark.parametrize(
    "make",
    [partial(rated, "LeastAllocated"), partial(rated, "MostAllocated"), balanced],
    ids=["least", "most", "balanced"],
)
@given(nodes=NODES, used=NODES, wanted=st.tuples(AMOUNTS, AMOUNTS, st.integers(0, 9)))
def test_a_few_nodes_get_the_scores_that_they_get_among_many(
    make: Callable[[], Score],
    nodes: list[tuple[int, int, int]],
    used: list[tuple[int, int, int]],
    wanted: tuple[int, int, int],
) -> None:
    cache, score = crowded(nodes, used), make()
    pod = cache.record(make_pod("p", cpu=f"{wanted[0]}m", memory=wanted[1], gpus=wanted[2]))

    together = score(pod, cache.nodes.view()).tolist()

    one_by_one = [score(pod, cache.nodes.view(slice(row, row + 1))).item() for row in range(len(nodes))]
    assert one_by_one == together[: len(nodes)]
    some = np.array([1, 5, 2])
    assert score(pod, cache.nodes.view(some)).tolist() == [together[row] for row in some]


LARGE = AMOUNTS | st.integers(2**45 - 2, 2**45 + 2) | st.integers(2**53, 2**53 + 3)


@pytest.mark.parametrize("kind", ["LeastAllocated", "MostAllocated"])
@given(
    nodes=st.lists(st.tuples(LARGE, LARGE, st.integers(0, 8)), min_size=FEW + 1, max_size=FEW + 4),
    steps=st.lists(st.tuples(st.integers(0, FEW), LARGE, LARGE, st.integers(0, 8)), max_size=6),
    wanted=st.tuples(LARGE, LARGE, st.integers(0, 9)),
)
def test_scores_from_what_is_kept_are_those_without_to_the_last_bit(
    kind: Literal["LeastAllocated", "MostAllocated"],
    nodes: list[tuple[int, int, int]],
    steps: list[tuple[int, int, int, int]],
    wanted: tuple[int, int, int],
) -> None:
    cache, rate, even = crowded(nodes, []), rated(kind), balanced()
    cpu, memory, gpus = wanted
    pod = cache.record(make_pod("p", cpu=f"{cpu}m", memory=memory, gpus=gpus))
    for number, (row, *used) in enumerate([(0, 0, 0, 0), *steps]):
        there = make_pod(f"q{number}", cpu=f"{used[0]}m", memory=used[1], gpus=used[2], node=f"n{row}")
        cache.upsert_pod(cache.record(there))
        whole = cache.nodes.view()
        rows = np.arange(len(nodes))

        for score in (rate, even):
            assert score(pod, whole).tobytes() == score(pod, whole.at(rows)).tobytes()


@given(nodes=NODES, used=NODES, wanted=st.tuples(AMOUNTS, AMOUNTS, st.integers(0, 9)))
def test_a_node_alone_gets_the_verdict_that_it_gets_among_others(
    nodes: list[tuple[int, int, int]], used: list[tuple[int, int, int]], wanted: tuple[int, int, int]
) -> None:
    cache = crowded(nodes, used)
    plugin = NodeResourcesFit(FitArgs(), FakeHandle(cache))
    pod = cache.record(make_pod("p", cpu=f"{wanted[0]}m", memory=wanted[1], gpus=wanted[2]))

    together = plugin.filter(pod, cache.nodes.view()).tolist()

    alone = [plugin.filter(pod, cache.nodes.view(slice(row, row + 1))).item() for row in range(len(nodes))]
    assert alone == together[: len(nodes)]


def crowded(nodes: list[tuple[int, int, int]], used: list[tuple[int, int, int]]) -> Cache:
    """Nodes of these amounts, each with a pod."""
    cache = cluster(
        make_node(f"n{i}", cpu=f"{cpu}m", memory=memory, gpus=gpus) for i, (cpu, memory, gpus) in enumerate(nodes)
    )
    for i, (cpu, memory, gpus) in enumerate(used[: len(nodes)]):
        cache.upsert_pod(cache.record(make_pod(f"q{i}", cpu=f"{cpu}m", memory=memory, gpus=gpus, node=f"n{i}")))
    return cache
