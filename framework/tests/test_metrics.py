"""Numbers come out as Prometheus wants them."""

from __future__ import annotations

from prometheus_client import generate_latest

from gangline.metrics import Metrics, Series


def test_buckets_are_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    series = Series((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        series.observe(value)

    assert series.buckets() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert series.count == 4 and series.total == 12.0


def test_series_are_one_per_label_values_and_are_exposed() -> None:
    metrics = Metrics()
    metrics.binding.series("success").observe(0.001)
    metrics.binding.series("success").observe(0.001)

    text = generate_latest(metrics.registry).decode()

    assert 'gangline_binding_duration_seconds_count{result="success"} 2.0' in text
    assert 'gangline_binding_duration_seconds_sum{result="success"} 0.002' in text


def test_names_are_those_of_kube_scheduler() -> None:
    metrics = Metrics()
    metrics.attempts_total.labels("scheduled", "default-scheduler").inc()
    metrics.pending.labels("active").set(3)

    text = generate_latest(metrics.registry).decode()

    assert 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0' in text
    assert 'scheduler_pending_pods{queue="active"} 3.0' in text
