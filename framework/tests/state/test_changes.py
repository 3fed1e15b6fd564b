"""The log of changes, several logs as one, and columns that are kept by them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import NODE, Changes, KeptColumns, NodeView
from gangline.state.changes import OWN, Together, together
from gangline.testing import cluster, make_node, make_pod

ROWS = st.integers(0, 200)


@given(st.lists(ROWS, max_size=300), st.data())
def test_the_rows_since_a_position_are_those_that_were_noted_after_it_each_once(
    noted: list[int], data: st.DataObject
) -> None:
    log = Changes(keep=50)
    positions = []
    for row in noted:
        positions.append(log.position)
        log.note(row, NODE)
    for at in data.draw(st.lists(st.integers(0, max(0, len(noted) - 1)), max_size=5)) if noted else ():
        changed = log.since(positions[at], limit=1000)

        if changed is None:
            assert len(noted) - at > 50, "only what is long ago is forgotten"
        else:
            assert sorted(changed[0].tolist()) == sorted(set(noted[at:])) and changed[1] == NODE


def test_a_change_of_all_rows_is_more_than_any_limit_until_it_is_seen() -> None:
    log = Changes()
    before = log.position
    log.note_all()
    after = log.position
    log.note(3)

    assert log.since(before, 10**6) is None
    assert log.since(after, 10) is not None and log.since(log.position, 10) is not None


def test_several_logs_answer_as_one() -> None:
    nodes, own = Changes(), Changes()
    logs = Together((nodes, own))
    before = logs.position
    nodes.note(1, NODE)
    own.note_rows(np.array([1, 4], dtype=np.intp))

    changed = logs.since(before, 10)

    assert changed is not None and changed[0].tolist() == [1, 4] and changed[1] == NODE | OWN
    assert logs.since(before, 1) is None


def test_kept_columns_are_evaluated_for_the_rows_that_have_changed_alone() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(10))
    own, asked = Changes(), list[tuple[str, list[int]]]()

    def evaluate(key: str, nodes: NodeView) -> tuple[Any]:
        asked.append((key, nodes.rows.tolist()))
        return (nodes.requested("cpu") + len(key),)

    kept = KeptColumns(evaluate, 2**20, own=(own,))
    view = cache.nodes.view()
    kept.of("a", view)
    cache.upsert_pod(cache.record(make_pod("p", cpu=1, node="n3")))
    own.note(7)

    (column,) = kept.of("a", view.at(np.array([5, 6])))
    kept.of("a", view)
    kept.of("bb", view)

    assert column.tolist() == [1, 1, 1, 1001, 1, 1, 1, 1, 1, 1]
    assert asked == [("a", list(range(10))), ("a", [3, 7]), ("bb", list(range(10)))]


def test_kept_columns_cannot_be_written_and_are_nobody_elses() -> None:
    class Named(NamedTuple):
        amounts: Any

    cache = cluster(make_node(f"n{i}", cpu=4) for i in range(3))
    kept: KeptColumns[str, Named] = KeptColumns(lambda key, nodes: Named(nodes.allocatable("cpu")), 2**20)
    column = kept.of("a", cache.nodes.view()).amounts

    with pytest.raises(ValueError, match="read-only"):
        column += 1
    cache.upsert_node(make_node("n1", cpu=8))

    assert kept.of("a", cache.nodes.view()).amounts.tolist() == [4000, 8000, 4000]


def test_kept_columns_grow_where_a_value_needs_more_bits() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(3))
    codes = {"n0": 1, "n1": 0, "n2": 0}

    def evaluate(key: str, nodes: NodeView) -> tuple[Any]:
        found = [codes[name] for name in nodes.names]
        return (np.array(found, dtype=np.uint16 if max(found) > 255 else np.uint8),)

    kept = KeptColumns(evaluate, 2**20)
    kept.of("a", cache.nodes.view())
    codes["n2"] = 256
    cache.upsert_node(make_node("n2", cpu=2))

    assert kept.of("a", cache.nodes.view())[0].tolist() == [1, 0, 256]


def test_kept_columns_stay_within_their_bound() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(1000))
    kept: KeptColumns[int, tuple[Any]] = KeptColumns(lambda key, nodes: (np.full(len(nodes), key),), 400_000)

    for key in range(200):
        kept.of(key, cache.nodes.view())

    assert 16 <= len(kept) <= 50


@pytest.mark.parametrize("row", [-1, 10**9, "a", None, 1.5])
def test_a_row_that_there_is_not_is_refused_where_a_plugin_notes_it(row: Any) -> None:
    own = Changes()

    with pytest.raises((TypeError, ValueError)):
        own.note(row)

    assert own.position == 0


@pytest.mark.parametrize(
    "answer",
    [np.zeros(3), (), (np.zeros(2),), (3.0,), [np.zeros(3)]],
    ids=["an array", "nothing", "another length", "a number", "a list"],
)
def test_what_is_no_tuple_of_whole_columns_is_refused(answer: Any) -> None:
    cache = cluster(make_node(f"n{i}") for i in range(3))
    kept: KeptColumns[str, Any] = KeptColumns(lambda key, nodes: answer, 2**20)

    with pytest.raises(ValueError, match="kept column"):
        kept.of("a", cache.nodes.view())


def test_fewer_columns_than_before_are_refused() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(3))
    number = [2]
    kept: KeptColumns[str, Any] = KeptColumns(lambda key, nodes: (np.zeros(len(nodes)),) * number[0], 2**20)
    kept.of("a", cache.nodes.view())
    number[0] = 1
    cache.upsert_node(make_node("n1", cpu=8))

    with pytest.raises(ValueError, match="a tuple of 2"):
        kept.of("a", cache.nodes.view())


def test_a_log_that_is_named_twice_is_read_once() -> None:
    nodes, own = Changes(), Changes()

    assert together((own, own)) is own
    assert together((nodes, own, own, nodes)).position == (0, 0)
