"""Numbers come out as Prometheus wants them."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import Counter, Gauge, generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.registry import Collector

from gangline.telemetry.exposition import MAX_AGE, Exposition
from gangline.telemetry.metrics import Metrics, Series

OPEN = "application/openmetrics-text; version=1.0.0"


def text_of(metrics: Metrics) -> str:
    return Exposition(metrics.registry, metrics.families).page("", "").body.decode()


def test_buckets_are_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    series = Series((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        series.observe(value)

    assert list(series.lines("x", "")) == [
        'x_bucket{le="1.0"} 2.0\n',
        'x_bucket{le="2.0"} 3.0\n',
        'x_bucket{le="+Inf"} 4.0\n',
        "x_count 4.0\n",
        "x_sum 12.0\n",
    ]


def test_series_are_one_per_label_values_and_are_exposed() -> None:
    metrics = Metrics()
    metrics.binding.series("success").observe(0.001)
    metrics.binding.series("success").observe(0.001)

    text = text_of(metrics)

    assert 'gangline_binding_duration_seconds_count{result="success"} 2.0' in text
    assert 'gangline_binding_duration_seconds_sum{result="success"} 0.002' in text


def test_a_series_that_has_seen_nothing_is_left_out_unless_an_alert_needs_it() -> None:
    metrics = Metrics()
    metrics.plugins.series("Filter", "NodeName")
    metrics.binding.series("failure")

    assert "scheduler_plugin_execution_duration_seconds_bucket" not in text_of(metrics)
    assert 'gangline_binding_duration_seconds_count{result="failure"} 0.0' in text_of(metrics)


def test_names_are_those_of_kube_scheduler() -> None:
    metrics = Metrics()
    metrics.attempts.series("scheduled", "default-scheduler").observe(0.1)
    metrics.pending.labels("active").set(3)

    text = text_of(metrics)

    assert 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0' in text
    assert 'scheduler_pending_pods{queue="active"} 3.0' in text


@pytest.mark.parametrize("accept", ["", OPEN], ids=["text", "OpenMetrics"])
def test_the_page_can_be_parsed_whatever_label_values_say(accept: str) -> None:
    metrics = Metrics()
    metrics.points.series("Filter", 'a "quoted\\" name\nof a profile').observe(3e-6)

    text = Exposition(metrics.registry, metrics.families).page(accept, "").body.decode()

    parsed = openmetrics.text_string_to_metric_families if accept else parse
    families = {family.name: family for family in parsed(text)}
    samples = families["scheduler_framework_extension_point_duration_seconds"].samples
    assert {sample.labels["profile"] for sample in samples} == {'a "quoted\\" name\nof a profile'}
    assert {sample.value for sample in samples if sample.labels.get("le") == "2e-06"} == {0.0}
    assert {sample.value for sample in samples if sample.labels.get("le") == "4e-06"} == {1.0}


def test_a_page_is_written_once_in_a_while_and_zipped_for_who_asks() -> None:
    metrics, now = Metrics(), [0.0]
    exposition = Exposition(metrics.registry, metrics.families, lambda: now[0])
    first = exposition.page("", "").body

    metrics.binding.series("success").observe(0.001)
    now[0] = MAX_AGE - 0.1
    assert exposition.page("", "").body is first
    now[0] = MAX_AGE
    later, zipped = exposition.page("", ""), exposition.page("", "gzip, br")
    assert b'gangline_binding_duration_seconds_count{result="success"} 1.0' in later.body
    assert zipped.headers["Content-Encoding"] == "gzip" and gzip.decompress(zipped.body) == later.body


def test_a_page_is_written_while_another_thread_adds_series() -> None:
    metrics, stop = Metrics(), threading.Event()

    def add() -> None:
        number = 0
        while not stop.is_set():
            metrics.plugins.series("Filter", f"p{number % 60}").observe(1e-6 * number)
            metrics.plugins._series.pop(("Filter", f"p{(number + 30) % 60}"), None)
            number += 1

    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(30 if os.environ.get("CI") else 10):
            list(parse(text_of(metrics)))
    finally:
        stop.set()
        thread.join()


def test_a_scrape_while_the_configuration_is_replaced_shows_no_family_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, pages = Metrics(), list[str]()
    metrics.of_plugins.get(Counter, "moves", "Moves of pods.", ()).inc()
    register, unregister = metrics.registry.register, metrics.registry.unregister

    def scraped(step: Callable[[Collector], None]) -> Callable[[Collector], None]:
        def and_scrape(collector: Collector) -> None:
            step(collector)
            pages.append(generate_latest(metrics.registry).decode())

        return and_scrape

    monkeypatch.setattr(metrics.registry, "register", scraped(register))
    monkeypatch.setattr(metrics.registry, "unregister", scraped(unregister))
    following = metrics.of_plugins.successor()
    following.get(Counter, "moves", "Moves of pods by kind.", ("kind",)).labels("pod").inc(5)
    metrics.of_plugins = following
    pages.append(generate_latest(metrics.registry).decode())

    assert [page.count("# TYPE moves_total counter") for page in pages] == [1, 1, 1]
    assert ["moves_total 1.0" in page for page in pages] == [True, True, False]
    assert 'moves_total{kind="pod"} 5.0' in pages[-1]


@pytest.mark.parametrize("name", ["gangline_invalid_objects", "scheduler_pending_pods"])
def test_a_plugin_cannot_take_the_name_of_a_metric_of_the_framework(name: str) -> None:
    metrics = Metrics()
    kind: Any = Gauge if name.endswith("pods") else Counter

    with pytest.raises(ValueError, match="Duplicated"):
        metrics.of_plugins.get(kind, name, "Mine.", ())
