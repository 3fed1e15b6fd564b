"""Annotations are read as documented; a bad value counts as none and is told."""

from __future__ import annotations

import pytest

from gangline import PLACEMENT_STRATEGY, strategy_of
from gangline_plugins.topology_annotations.wishes import (
    GPU_COUNT,
    LATENCY_SENSITIVE,
    NETWORK_BANDWIDTH,
    NO_WISHES,
    PREFERRED_DOMAIN,
    Wishes,
    read,
)


def test_all_wishes_are_read() -> None:
    annotations = {
        GPU_COUNT: "16",
        PREFERRED_DOMAIN: "leaf-1",
        NETWORK_BANDWIDTH: "200Gb",
        LATENCY_SENSITIVE: "true",
        PLACEMENT_STRATEGY: "consolidated",
    }

    assert read(annotations) == (Wishes("leaf-1", 200, True, "consolidated"), ())


def test_without_annotations_there_are_no_wishes() -> None:
    assert read({"other": "x"}) == (NO_WISHES, ())


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        (GPU_COUNT, "0", "a positive whole number"),
        (GPU_COUNT, "four", "a positive whole number"),
        (GPU_COUNT, "-4", "a positive whole number"),
        (GPU_COUNT, "2.5", "a positive whole number"),
        (NETWORK_BANDWIDTH, "fast", 'a whole number of gigabits such as "200Gb"'),
        (NETWORK_BANDWIDTH, "0Gb", 'a whole number of gigabits such as "200Gb"'),
        (NETWORK_BANDWIDTH, "200", 'a whole number of gigabits such as "200Gb"'),
        (LATENCY_SENSITIVE, "yes", '"true" or "false"'),
        (PLACEMENT_STRATEGY, "dense", "one of consolidated, distributed, balanced"),
        (PREFERRED_DOMAIN, "", "the name of a domain"),
    ],
)
def test_a_bad_value_is_told_and_ignored(key: str, value: str, what: str) -> None:
    assert read({key: value}) == (NO_WISHES, (f"{key}: {value!r} is not {what}",))


def test_a_bad_value_does_not_spoil_the_others() -> None:
    wishes, problems = read({NETWORK_BANDWIDTH: "fast", LATENCY_SENSITIVE: "true"})

    assert wishes == Wishes(latency_sensitive=True)
    assert len(problems) == 1


def test_gigabits_per_second_may_be_written_out() -> None:
    assert read({NETWORK_BANDWIDTH: "100Gbps"})[0].gbps == 100


@pytest.mark.parametrize(
    ("asked", "strategy"),
    [("consolidated", "consolidated"), ("distributed", "distributed"), ("balanced", "balanced"), ("x", "balanced")],
)
def test_the_strategy_is_what_is_asked_for_where_there_is_such_a_one(asked: str, strategy: str) -> None:
    assert strategy_of({PLACEMENT_STRATEGY: asked}) == strategy


def test_the_strategy_is_balanced_where_none_is_asked_for() -> None:
    assert strategy_of({}) == "balanced"
