"""Histograms that count a value many times at once say what histograms of prometheus_client say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from gangline.telemetry.distribution import Distribution

BOUNDS = (0.125, 0.5, 1, 16e9, 3.6e12)


def page(collector: Any, write: Any) -> list[str]:
    """The lines of a page that Prometheus keeps."""
    registry = CollectorRegistry()
    registry.register(collector)
    return [line for line in write(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 7.0, 16e9, 17e9, 4e12]), st.integers(1, 5))))
def test_many_values_at_once_are_written_as_one_by_one(values: list[tuple[float, int]]) -> None:
    at_once = Distribution("links", "How fast.", buckets=BOUNDS)
    one_by_one = Histogram("links", "How fast.", buckets=BOUNDS, registry=None)
    for value, number in values:
        at_once.observe(value, number)
        for _ in range(number):
            one_by_one.observe(value)

    for write in (generate_latest, openmetrics):
        assert page(at_once, write) == page(one_by_one, write)


@pytest.mark.parametrize(
    "wrong",
    [{"labels": ("kind",)}, {"buckets": ()}, {"buckets": (1, 1)}, {"buckets": (2, 1)}, {"buckets": (1, float("nan"))}],
)
def test_what_cannot_be_counted_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="links"):
        Distribution("links", "How fast.", **{"buckets": (1, 2), **wrong})
