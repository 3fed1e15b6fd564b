"""The picture and its changes belong together: who has one edition and the changes has the next one."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gangline.page.tables import EVERYBODY, PictureTables, applied, joined, written

STEPS = st.lists(
    st.tuples(
        st.sampled_from([EVERYBODY, "a", "b"]),
        st.sampled_from(["nodes", "pods"]),
        st.sampled_from(["x", "y", "z"]),
        st.none() | st.integers(0, 3),
    ),
    max_size=30,
)


def play(tables: PictureTables, steps: list[tuple[str, str, str, int | None]]) -> None:
    for namespace, table, key, value in steps:
        if value is None:
            tables.drop(namespace, table, key)
        else:
            tables.put(namespace, table, key, (value,))


@given(STEPS, STEPS)
def test_an_edition_and_its_changes_give_the_next_edition(before: object, after: object) -> None:
    tables = PictureTables()
    play(tables, before)  # type: ignore[arg-type]  # hypothesis has no better type
    tables.changes()
    old = {name: {t: dict(r) for t, r in tables.rows(name).items()} for name in (EVERYBODY, "a", "b")}
    play(tables, after)  # type: ignore[arg-type]  # as above
    changes = tables.changes()

    assert {name: applied(old[name], changes.get(name, {})) for name in old} == {
        name: tables.rows(name) for name in old
    }


def test_a_row_that_stays_the_same_is_no_change() -> None:
    tables = PictureTables()
    tables.put("a", "pods", "x", (1, ("y",)))
    tables.changes()
    tables.put("a", "pods", "x", (1, ("y",)))
    tables.drop("a", "pods", "no-such")

    assert tables.changes() == {}


def test_a_namespace_without_rows_is_gone() -> None:
    tables = PictureTables()
    tables.put("a", "pods", "x", (1,))
    tables.put(EVERYBODY, "nodes", "n", (1,))
    tables.drop("a", "pods", "x")

    assert tables.namespaces == frozenset()


def test_a_message_is_one_line_of_json_whatever_names_there_are() -> None:
    part = written({"pods": {"a\nb</script>\u2028": (1, 'x"y')}})
    message = joined("e.1.s", {EVERYBODY: b"{}", 'odd"\n': part})

    assert b"\n" not in message
    assert json.loads(message)["of"]['odd"\n'] == {"pods": {"a\nb</script>\u2028": [1, 'x"y']}}
