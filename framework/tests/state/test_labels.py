"""Label columns follow the nodes, cell by cell."""

from __future__ import annotations

import pytest

from gangline.state.labels import parse_integer
from gangline.testing import cluster, make_node


def test_a_column_made_late_knows_the_nodes_that_were_there() -> None:
    cache = cluster([make_node("a", labels={"rack": "r1"}), make_node("b")])

    column = cache.nodes.view().label("rack")

    assert column.exists.tolist() == [True, False]
    assert column.equals("r1").tolist() == [True, False]
    assert not column.equals("never seen").any()


def test_a_column_follows_changes_and_grows_with_the_nodes() -> None:
    cache = cluster([make_node("a", labels={"rack": "r1"})])
    cache.nodes.view().label("rack")

    cache.upsert_node(make_node("a", labels={"rack": "r2"}))
    for i in range(200):
        cache.upsert_node(make_node(f"n{i}", labels={"rack": f"r{i % 3}"} if i % 2 else None))

    column = cache.nodes.view().label("rack")
    assert [column.values[i] if i >= 0 else None for i in column.ids.tolist()[:4]] == ["r2", None, "r1", None]
    assert int(column.isin(["r0", "r1", "r2"]).sum()) == 101


def test_integers_are_read_where_values_are_some() -> None:
    values = ["7", "-3", "x", None, "9223372036854775808"]
    nodes = [make_node(f"n{i}", labels=None if value is None else {"level": value}) for i, value in enumerate(values)]

    numbers, valid = cluster(nodes).nodes.view().label("level").integers()

    assert valid.tolist() == [True, True, False, False, False]
    assert numbers[valid].tolist() == [7, -3]


def test_a_label_that_no_node_has_has_no_integers() -> None:
    numbers, valid = cluster([make_node("a")]).nodes.view().label("level").integers()

    assert not valid.any() and numbers.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("+7", 7), ("-7", -7), ("007", 7), ("", None), ("7.0", None), ("-", None), ("1_0", None), ("٣", None)],
    ids=repr,
)
def test_an_integer_is_what_go_takes_for_one(text: str, number: int | None) -> None:
    assert parse_integer(text) == number
