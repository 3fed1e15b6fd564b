"""Columns, views over some of the rows, and the log of changes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import CodeColumn, NodeView, PluginError, Reason, codes, hookimpl
from gangline.state.changes import NODE, PODS, Changes
from gangline.testing import GPU, cluster, make_node, make_pod, run_filter
from gangline.testing import random_clusters as some


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([NODE, PODS, NODE | PODS])), max_size=60), st.integers(0, 60)
)
def test_changes_since_a_position_are_all_known_or_the_answer_is_none(notes: list[tuple[int, int]], start: int) -> None:
    changes = Changes(keep=8)
    positions = [changes.position]
    for row, kind in notes:
        changes.note(row, kind)
        positions.append(changes.position)
    start = min(start, len(notes))

    found = changes.since(positions[start], limit=6)

    if found is None:
        assert len(notes) - start > 8
    else:
        rows, kinds = found
        assert sorted(rows.tolist()) == sorted({row for row, _ in notes[start:]})
        assert kinds == changes.kinds_since(positions[start])
        assert kinds == functools.reduce(operator.or_, (kind for _, kind in notes[start:]), 0)


def test_more_rows_than_the_limit_are_too_many() -> None:
    changes = Changes()
    for row in range(4):
        changes.note(row, NODE)

    assert changes.since(0, limit=3) is None
    found = changes.since(1, limit=3)
    assert found is not None and found[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "resources", [("cpu",), ("cpu", "memory"), (GPU, "cpu"), ("cpu", "memory", GPU), ("no", "cpu")]
)
def test_a_view_over_one_row_says_what_a_view_over_many_rows_says_of_it(resources: tuple[str, ...]) -> None:
    nodes = cluster(
        [make_node(f"n{i}", gpus=i + 1, labels={"rack": f"r{i}"}) for i in range(3)],
        [make_pod("p", cpu=1, gpus=1, node="n1")],
    ).nodes
    for row, one in enumerate([nodes.view_of_one(0), nodes.view().at_row(1), nodes.view().at(np.array([2]))]):
        many = nodes.view(np.array([row]))
        allocatable, requested = many.amounts(resources)

        assert (len(one), one.first, one.names, one.is_whole) == (1, row, many.names, False)
        assert (one.index, one.rows.tolist()) == (slice(row, row + 1), [row])
        assert one.amounts_of_one(resources) == (allocatable[:, 0].tolist(), requested[:, 0].tolist())
        assert one.free_of_one(resources) == [many.free(resource).item() for resource in resources]
        assert one.nonzero_of_one == tuple(many.nonzero[:, 0].tolist())
        assert one.node(0) is many.node(0) and one.pods(0) == many.pods(0)
        assert one.full(True).tolist() == [True]


def test_a_view_over_some_rows_has_their_values_in_their_order() -> None:
    cache = cluster(
        [make_node(f"n{i}", gpus=i + 1, labels={"rack": f"r{i}"}) for i in range(4)],
        [make_pod("p", cpu=1, node="n3")],
    )

    view = cache.nodes.view(np.array([3, 1]))

    assert len(view) == 2 and view.names == ["n3", "n1"] and view.count == 4
    assert view.allocatable(GPU).tolist() == [4, 2] and view.requested("cpu").tolist() == [1000, 0]
    assert [m.tolist() for m in view.amounts((GPU, "cpu"))] == [[[4, 2], [128000] * 2], [[0, 0], [1000, 0]]]
    assert view.allocatable_of((GPU, "cpu")).tolist() == [[4, 2], [128000] * 2]
    assert view.free_of((GPU, "cpu")).tolist() == [[4, 2], [127000, 128000]]
    assert view.label("rack").equals("r1").tolist() == [False, True]
    assert view.nonzero[0].tolist() == [1000, 0]
    node = view.node(1)
    assert node is not None and node.metadata.name == "n1" and view.pods(0).keys() == {"pod-default-p"}


@given(st.lists(some.steps(), max_size=8))
def test_the_plain_numbers_of_one_node_are_those_of_its_columns(steps: list[some.Step]) -> None:
    cache, resources = cluster([]), ("cpu", GPU, *some.EXTENDED, "pods", "nobody/has", "memory")
    for step in steps:
        step(cache)

        for row in range(cache.nodes.size):
            one = cache.nodes.view(slice(row, row + 1))
            assert one.amounts_of_one(resources) == tuple(of[:, 0].tolist() for of in one.amounts(resources))
            assert one.free_of_one(resources) == [one.free(resource).item() for resource in resources]
            pods = list(one.pods(0).values())
            asked = [sum({**pod.cls.requests.real, "pods": 1}.get(name, 0) for pod in pods) for name in resources]
            offered = [one.allocatable(resource).item() for resource in resources]
            is_offered = [cache.nodes.axis.row(name) != cache.nodes.axis.NOTHING for name in resources]
            assert one.free_of_one(resources) == [
                whole - amount * counts for whole, amount, counts in zip(offered, asked, is_offered, strict=True)
            ]
            assert one.nonzero_of_one == tuple(one.nonzero[:, 0].tolist())
            assert cache.nodes.view(np.array([row])).nonzero_of_one == one.nonzero_of_one


def test_the_row_of_a_deleted_node_is_used_again_and_starts_empty() -> None:
    cache = cluster([make_node("a", labels={"rack": "r1"}, taints=["x:NoSchedule"]), make_node("b")])
    row = cache.nodes.row_of("a")
    cache.remove_node("a")
    assert cache.nodes.view().names == ["", "b"] and cache.nodes.view().alive.tolist() == [False, True]

    assert cache.upsert_node(make_node("c")) == row
    assert cache.nodes.view().label("rack").exists.tolist() == [False, False]
    assert cache.nodes.view().taints.tolist() == [0, 0]
    assert cache.nodes.order[:2].tolist() == [3, 2]


def test_more_nodes_and_resources_than_there_was_room_for_keep_their_values() -> None:
    cache = cluster()
    for i in range(150):
        cache.upsert_node(make_node(f"n{i}", resources={f"example.com/r{i % 20}": i + 1}))

    view = cache.nodes.view()

    assert len(view) == 150
    assert all(view.allocatable(f"example.com/r{i % 20}")[i] == i + 1 for i in range(150))


COLUMNS: dict[str, Callable[[NodeView], Any]] = {
    "alive": lambda view: view.alive,
    "unschedulable": lambda view: view.unschedulable,
    "taints": lambda view: view.taints,
    "allocatable": lambda view: view.allocatable(GPU),
    "requested": lambda view: view.requested(GPU),
    "free": lambda view: view.free(GPU),
    "amounts": lambda view: view.amounts(("cpu", "memory"))[1],
    "nonzero": lambda view: view.nonzero,
    "label": lambda view: view.label("rack").ids,
    "image": lambda view: view.image("main:1")[0],
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("grown", [0, 200], ids=["as made", "grown"])
def test_nobody_can_write_to_a_column_that_a_view_gives(column: Callable[[NodeView], Any], grown: int) -> None:
    cache = cluster([make_node("a", labels={"rack": "r"}, images={"main:1": 5})], [make_pod("p", gpus=3, node="a")])
    column(cache.nodes.view())  # made before the nodes are more than there was room for
    for i in range(grown):
        cache.upsert_node(make_node(f"n{i}", resources={f"example.com/r{i}": 1}))

    for view in (cache.nodes.view(), cache.nodes.view(slice(0, 1))):
        before = column(view).copy()
        with pytest.raises(ValueError, match="read-only"):
            column(view)[...] = 0
        assert column(view).tolist() == before.tolist()


def test_what_is_free_cannot_be_worked_out_in_place_and_the_plugin_is_named() -> None:
    class InPlace:
        name = "InPlace"
        reasons = (Reason("full"),)

        @hookimpl
        def filter(self, nodes: NodeView) -> CodeColumn:
            free = nodes.allocatable(GPU)
            free -= nodes.requested(GPU)
            return codes(free < 1)

    cache = cluster([make_node("a", gpus=8)], [make_pod("p", gpus=3, node="a")])

    with pytest.raises(PluginError, match="plugin InPlace at filter: ValueError: output array is read-only"):
        run_filter(InPlace, make_pod("q"), cache)

    assert cache.nodes.view().allocatable(GPU).tolist() == [8]


def test_the_pods_on_a_node_cannot_be_taken_off_by_who_looks_at_them() -> None:
    cache = cluster([make_node("a")], [make_pod("p", node="a")])

    with pytest.raises(TypeError):
        del cache.nodes.view().pods(0)["pod-default-p"]  # type: ignore[attr-defined]  # what a plugin must not do
