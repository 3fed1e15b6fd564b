"""Whatever the text: one kind of error, in bounded time."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline import cel
from gangline.errors import ExpressionError, ExpressionFailed, InvalidExpression

_DEVICE = cel.CelDevice.of(
    {"driver": "gpu.example.com", "attributes": {"numa": {"int": 1}, "model": {"string": "H100"}}}
)
_WORDS = [
    *("device", ".", "attributes", '["gpu.example.com"]', "numa", "(", ")", "[", "]", "{", "}", "?", ":", ",", "&&"),
    *("||", "==", "!", "-", "+", "1", "1u", "1.5", '"a"', "b'x'", "true", "null", "in", ".all(x, ", ".map(x, ", "x"),
    *("size(", "dyn(", "has(", "optional.of(", ".orValue(", "cel.bind(x, ", "type(", ".?", "[?", "quantity("),
]


def _run(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        cel.compile(text)(_DEVICE)


@given(st.text(max_size=80))
def test_any_text_gives_an_answer_or_an_expression_error(text: str) -> None:
    _run(text)


@settings(max_examples=settings().max_examples * 3)
@given(st.lists(st.sampled_from(_WORDS), max_size=25).map("".join))
def test_any_sequence_of_words_gives_an_answer_or_an_expression_error(text: str) -> None:
    _run(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "[" * 2000 + "]" * 2000,
        "!" * 9000 + "true",
        "1" + "+1" * 4000 + " == 2",
        "device" + ".a" * 4000,
        "true ? " * 1500 + "true" + " : false" * 1500,
        "[1].all(x, " * 500 + "true" + ")" * 500,
        "x" * 20000,
    ],
    ids=["brackets", "lists", "nots", "sums", "selects", "conditionals", "loops", "long"],
)
def test_nested_and_long_expressions_are_refused_or_answered_at_once(text: str) -> None:
    started = time.process_time()
    _run(text)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text",
    [
        "lists.range(900000).all(x, lists.range(900000).all(y, x >= 0))",
        "lists.range(9223372036854775807).size() == 0",
        "cel.bind(a, lists.range(150), a.map(x, a).map(y, a.map(x, a)) == a.map(x, a).map(y, a.map(x, a)))",
    ],
)
def test_an_expression_that_costs_too_much_fails(text: str) -> None:
    program = cel.compile(text)
    started = time.process_time()
    with pytest.raises(ExpressionFailed):
        program(_DEVICE)
    assert time.process_time() - started < 10


def test_a_regular_expression_takes_linear_time() -> None:
    program = cel.compile('("' + "a" * 2000 + '" + "!").matches("^(a|a)*$")')
    started = time.process_time()
    assert program(_DEVICE) is False
    assert time.process_time() - started < 1


_TERMS = st.sampled_from(["true", "false", "(1 / 0 == 1)"])


@given(_TERMS, _TERMS)
def test_a_decisive_term_wins_over_a_failure_on_either_side(left: str, right: str) -> None:
    for sign, decisive in (("&&", "false"), ("||", "true")):
        program = cel.compile(f"{left} {sign} {right}")
        if decisive in (left, right):
            assert program(_DEVICE) is (decisive == "true")
        elif "(1 / 0 == 1)" in (left, right):
            with pytest.raises(ExpressionFailed):
                program(_DEVICE)
        else:
            assert program(_DEVICE) is (decisive != "true")


def test_errors_say_where_and_why() -> None:
    with pytest.raises(InvalidExpression, match=r"character 1: undeclared is not declared"):
        cel.compile("undeclared == 1")
    with pytest.raises(ExpressionFailed, match="no such key: none"):
        cel.compile('device.attributes["a"].none == 1')(_DEVICE)


@pytest.mark.parametrize("index", ["5", "size([1, 2, 3])", "-1"])
def test_an_index_that_a_list_does_not_have_is_named(index: str) -> None:
    for text in (f'"a,b".split(",")[{index}] == "a"', f"[0][{index}] == 0"):
        with pytest.raises(ExpressionFailed, match=r"index out of bounds: (5|3|-1)"):
            cel.compile(f'device.driver == "gpu.example.com" && {text}')(_DEVICE)


@pytest.mark.parametrize("key", ["[0]", "{}", 'semver("1.2.3")', 'b"a"', 'duration("1s")', 'ip("::1")'])
def test_a_key_that_no_map_can_have_is_an_error(key: str) -> None:
    for text in (f"{{{key}: 1}}.size() == 1", f"[1].transformMapEntry(i, v, {{{key}: v}}).size() == 1"):
        with pytest.raises(ExpressionError):
            cel.compile(text)(_DEVICE)
