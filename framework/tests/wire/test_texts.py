"""Whatever text stands in an annotation, its reader answers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import InvalidObject
from gangline.wire.texts import MOST_IDS, device_ids, from_json


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0,1", (0, 1)),
        ("node-1:3, 2,2", (2, 3)),
        ("", ()),
        ("x,1,-1,1.5,٣", (1,)),
        ("9" * 5000, ()),
        (",".join(["7"] * 100_000), (7,)),
    ],
    ids=lambda value: str(value)[:12],
)
def test_ids_are_read_and_everything_else_is_left_out(text: str, ids: tuple[int, ...]) -> None:
    assert device_ids(text) == ids


@given(st.text())
def test_no_text_ends_the_reader_of_ids(text: str) -> None:
    assert len(device_ids(text)) <= MOST_IDS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "Expected `object`, got `array`"),
        ('{"a": "x"}', "Expected `int`, got `str`"),
        ("9" * 5000, "Expected|digits|range"),
        ("\ud800", "surrogates"),
        (" " * 300_000, "300000 characters of JSON, and at most 262144 are read"),
        ("", "truncated"),
    ],
    ids=["list", "type", "digits", "surrogate", "long", "empty"],
)
def test_json_that_cannot_be_read_is_an_invalid_object(text: str, why: str) -> None:
    with pytest.raises(InvalidObject, match=why) as raised:
        from_json("annotation example.com/a", text, dict[str, int])

    assert str(raised.value).startswith("annotation example.com/a: ") and len(str(raised.value)) < 1000


def test_json_that_is_nested_too_deeply_where_nobody_reads_it_is_an_invalid_object() -> None:
    text = '{"a": 1, "b": ' + "[" * 3000 + "]" * 3000 + "}"

    with pytest.raises(InvalidObject, match="is nested too deeply"):
        from_json("annotation example.com/a", text, History)


class History(msgspec.Struct):
    a: int
