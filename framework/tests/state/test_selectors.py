"""Label selectors: what they match, and which ones make no sense."""

from __future__ import annotations

import pytest

from gangline import EVERYTHING, NOTHING, InvalidObject, compile_selector, from_map
from gangline.model import LabelSelector, Requirement


@pytest.mark.parametrize(
    ("operator", "values", "matching"),
    [
        ("In", ["a", "b"], ["a", "b"]),
        ("NotIn", ["a"], ["b", None]),
        ("Exists", [], ["a", "b"]),
        ("DoesNotExist", [], [None]),
    ],
    ids=lambda value: str(value),
)
def test_each_operator_matches_what_kubernetes_says(
    operator: str, values: list[str], matching: list[str | None]
) -> None:
    selector = compile_selector(LabelSelector(match_expressions=[Requirement("key", operator, values)]))

    found = [value for value in ("a", "b", None) if selector.matches({} if value is None else {"key": value})]

    assert found == matching


def test_requirements_are_all_needed() -> None:
    selector = compile_selector(
        LabelSelector(match_labels={"app": "web"}, match_expressions=[Requirement("tier", "Exists")])
    )

    assert selector.matches({"app": "web", "tier": "front"})
    assert not selector.matches({"app": "web"}) and not selector.matches({"app": "db", "tier": "front"})


def test_an_absent_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert compile_selector(None) == NOTHING and not NOTHING.matches({})
    assert compile_selector(LabelSelector()) == EVERYTHING and EVERYTHING.matches({"a": "b"})
    assert EVERYTHING.is_empty and not NOTHING.is_empty


def test_equal_selectors_are_one_key_whatever_their_order() -> None:
    one = compile_selector(LabelSelector(match_labels={"a": "1", "b": "2"}))
    other = compile_selector(
        LabelSelector(match_labels={"b": "2"}, match_expressions=[Requirement("a", "In", ["1"])] * 2)
    )

    assert one == other and hash(one) == hash(other)


def test_more_requirements_narrow_a_selector_but_wake_no_empty_one() -> None:
    extra = ("a", "In", frozenset({"1"}))

    assert EVERYTHING.with_requirements(extra).matches({"a": "1"})
    assert not EVERYTHING.with_requirements(extra).matches({"a": "2"})
    assert NOTHING.with_requirements(extra) is NOTHING


def test_a_map_selects_what_has_all_of_it_and_an_empty_one_nothing() -> None:
    assert from_map({"a": "1"}).matches({"a": "1", "b": "2"})
    assert from_map({}) is NOTHING and from_map(None) is NOTHING


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        (
            Requirement("a", "Near", ["1"]),
            "sel.matchExpressions[0].operator: 'Near': must be one of In, NotIn, Exists, DoesNotExist",
        ),
        (Requirement("a", "In"), "sel.matchExpressions[0].values: []: must not be empty for In"),
        (Requirement("a", "Exists", ["1"]), "sel.matchExpressions[0].values: ['1']: must be empty for Exists"),
    ],
    ids=["operator", "no values", "needless values"],
)
def test_a_requirement_that_makes_no_sense_is_named(requirement: Requirement, message: str) -> None:
    with pytest.raises(InvalidObject) as error:
        compile_selector(LabelSelector(match_expressions=[requirement]), "sel")

    assert str(error.value) == message
