"""The log of changes, several logs as one, and columns that are kept by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import NODE, PODS, Changes, KeptColumns, NodeView
from gangline.state.changes import OWN, Together, note_in_both, together
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


@given(st.lists(st.tuples(st.integers(0, 1), ROWS, st.sampled_from([NODE, PODS, OWN]), st.booleans()), max_size=12))
def test_a_single_change_of_pods_is_told_from_all_others(noted: list[tuple[int, int, int, bool]]) -> None:
    logs = (Changes(keep=3), Changes(keep=3))
    read: tuple[Any, ...] = (*logs, Together(logs))
    positions = [[each.position for each in read]]
    for number, row, kind, is_all in noted:
        logs[number].note_all(kind) if is_all else logs[number].note(row, kind)
        positions.append([each.position for each in read])

    for at, position in enumerate(positions):
        for each, before, of in zip(read, position, ({0}, {1}, {0, 1}), strict=True):
            since = [(row, kind, is_all) for number, row, kind, is_all in noted[at:] if number in of]
            is_single = len(since) == 1 and since[0][1:] == (PODS, False)
            assert each.only_row(before) == (since[0][0] if is_single else -1)


@given(st.lists(st.tuples(ROWS, st.sampled_from([NODE, PODS]), st.booleans()), max_size=40))
def test_a_change_that_is_noted_in_two_logs_at_once_is_in_each_as_if_it_were_noted_there(
    noted: list[tuple[int, int, bool]],
) -> None:
    logs, alike = (Changes(keep=3), Changes(keep=5)), (Changes(keep=3), Changes(keep=5))
    for row, kind, also_alone in noted:
        note_in_both(*logs, row, kind)
        for each in (*alike, *([logs[0], alike[0]] if also_alone else [])):
            each.note_valid(row, kind)

        for one, other in zip(logs, alike, strict=True):
            for before in range(max(0, one.position - 8), one.position + 1):
                found, wanted = one.since(before, 100), other.since(before, 100)
                assert (found is None) == (wanted is None) and one.only_row(before) == other.only_row(before)
                if found is not None and wanted is not None:
                    assert sorted(found[0].tolist()) == sorted(wanted[0].tolist()) and found[1] == wanted[1]


@given(st.lists(st.lists(ROWS, max_size=60), max_size=8), st.data())
def test_rows_that_are_noted_at_once_are_read_as_if_they_were_noted_one_by_one(
    noted: list[list[int]], data: st.DataObject
) -> None:
    logs = Changes(keep=50), Changes(keep=50)
    positions = [(logs[0].position, logs[1].position)]
    for rows in noted:
        logs[0].note_rows(np.array(rows, dtype=np.intp), PODS)
        for row in rows:
            logs[1].note(row, PODS)
        if data.draw(st.booleans()):
            logs[0].since(logs[0].position, 1000)
        positions.append((logs[0].position, logs[1].position))

    for at_once, one_by_one in positions:
        changed, expected = logs[0].since(at_once, 1000), logs[1].since(one_by_one, 1000)
        if changed is not None and expected is not None:
            assert sorted(changed[0].tolist()) == sorted(expected[0].tolist()) and changed[1] == expected[1]
        else:
            assert expected is None or len(max(noted, key=len)) > 50, "only many rows at once are all rows"


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


def test_a_kept_table_has_a_column_for_each_node() -> None:
    cache = cluster(make_node(f"n{i}", cpu=4) for i in range(3))

    def evaluate(key: str, nodes: NodeView) -> tuple[Any]:
        return (np.stack([nodes.allocatable("cpu"), nodes.requested("cpu")]),)

    kept = KeptColumns(evaluate, 2**20)
    kept.of("a", cache.nodes.view())
    cache.upsert_pod(cache.record(make_pod("p", cpu=1, node="n1")))
    one = kept.of("a", cache.nodes.view())[0].tolist()
    cache.upsert_node(make_node("n0", cpu=8))
    cache.upsert_pod(cache.record(make_pod("q", cpu=2, node="n2")))

    assert one == [[4000, 4000, 4000], [0, 1000, 0]]
    assert kept.of("a", cache.nodes.view())[0].tolist() == [[8000, 4000, 4000], [0, 1000, 2000]]


def test_a_table_of_another_height_than_before_is_refused() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(3))
    height = [2]
    kept: KeptColumns[str, Any] = KeptColumns(lambda key, nodes: (np.zeros((height[0], len(nodes))),), 2**20)
    kept.of("a", cache.nodes.view())
    height[0] = 1
    cache.upsert_node(make_node("n1", cpu=8))

    with pytest.raises(ValueError, match="a kept column had the shape"):
        kept.of("a", cache.nodes.view())


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
    [np.zeros(3), (), (np.zeros(2),), (3.0,), [np.zeros(3)], (np.zeros((3, 2)),), (np.zeros((1, 1, 3)),)],
    ids=["an array", "nothing", "another length", "a number", "a list", "a table on its side", "a table of tables"],
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


@pytest.mark.parametrize("kind", [NODE, PODS, OWN])
@pytest.mark.parametrize("row", [-1, 10**12, 0.5, "0", None])
def test_a_log_takes_only_rows_that_may_exist(row: Any, kind: int) -> None:
    log = Changes()

    wrong: list[Callable[[], None]] = [lambda: log.note(row, kind), lambda: log.note_rows([0, row], kind)]
    for each in wrong:
        with pytest.raises((TypeError, ValueError)):
            each()

    assert log.position == 0


@pytest.mark.parametrize("kind", [0, -1, 8, "node", None])
def test_a_log_takes_only_kinds_that_exist(kind: Any) -> None:
    log = Changes()

    wrong: list[Callable[[], None]] = [
        lambda: log.note(0, kind),
        lambda: log.note_rows([0], kind),
        lambda: log.note_all(kind),
    ]
    for each in wrong:
        with pytest.raises((TypeError, ValueError)):
            each()

    assert log.position == 0


def test_the_last_change_of_a_kind_may_be_one_of_several_kinds() -> None:
    changes = Changes()
    assert changes.last(NODE) == 0

    changes.note(0, NODE)
    changes.note(1, NODE | PODS)
    changes.note(2, OWN)

    assert (changes.last(NODE), changes.last(PODS), changes.last(OWN)) == (2, 2, 3)
