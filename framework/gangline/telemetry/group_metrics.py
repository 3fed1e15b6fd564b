"""Metrics of decisions, under names that users of topology schedulers know, and of pod groups, under our own names.

Each decision, on a single pod or a group, is one number in one histogram; the other metrics follow from the histogram
when Prometheus asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gangline.telemetry.series import Series

_SECONDS = tuple(0.001 * 2**i for i in range(15))
"""1 ms to 16 s."""
_LONG = tuple(0.01 * 2**i for i in range(20))
"""10 ms to 1.5 h."""
_SCORES = tuple(round(0.1 * i, 1) for i in range(10))


class Placements(Collector):
    """Decisions by strategy and result, as latency, attempts, successes and results; and from queueing to binding."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], Series] = {}
        self.to_binding = Series(_LONG)

    def decided(self, strategy: str, result: str, seconds: float) -> None:
        """A decision took this many seconds; the result is success, unschedulable or error."""
        series = self._taken.get((strategy, result))
        if series is None:
            series = self._taken[strategy, result] = Series(_SECONDS)
        series.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        labels = ("strategy",)
        latency = HistogramMetricFamily(
            "topology_scheduler_latency_seconds", "Duration of one decision on a pod or a pod group.", labels=labels
        )
        attempts = CounterMetricFamily(
            "topology_scheduler_attempts", "Decisions on pods and pod groups.", labels=labels
        )
        success = CounterMetricFamily(
            "topology_scheduler_success", "Decisions that placed a pod or a pod group.", labels=labels
        )
        results = CounterMetricFamily(
            "topology_placement_decisions",
            "Decisions on pods and pod groups, by result: success, unschedulable, error.",
            labels=("strategy", "result"),
        )
        taken = dict(self._taken)
        for strategy in sorted({strategy for strategy, _ in taken}):
            whole = Series(_SECONDS)
            for (mine, result), series in taken.items():
                if mine == strategy:
                    whole.add(series)
                    results.add_metric((strategy, result), series.count)
            latency.add_metric((strategy,), whole.buckets(), whole.total)
            attempts.add_metric((strategy,), whole.count)
            won = taken.get((strategy, "success"))
            success.add_metric((strategy,), won.count if won is not None else 0)
        yield from (latency, attempts, success, results)
        placement = HistogramMetricFamily(
            "topology_scheduler_placement_duration_seconds", "From queueing a pod or a pod group to its binding."
        )
        placement.add_metric((), self.to_binding.buckets(), self.to_binding.total)
        yield placement


class GroupMetrics:
    """Counters and histograms of groups; `strategy` is that of the placement: consolidated, distributed, balanced."""

    ERRORS = "topology_scheduler_errors"
    """A counter that plugins ask for, too."""
    ERROR_LABELS = ("type",)

    def __init__(self, registry: CollectorRegistry) -> None:
        self._placements = Placements()
        registry.register(self._placements)
        self.errors = Counter(
            self.ERRORS,
            "Decisions that placed nothing, by type: placement_STRATEGY, invalid_gpu_requirements, invalid_strategy.",
            self.ERROR_LABELS,
            registry=registry,
        )
        self._scores = Histogram(
            "topology_placement_scores",
            "Score of the placement of a pod group that was taken, 0 to 1.",
            ("strategy",),
            buckets=_SCORES,
            registry=registry,
        )
        self._recoveries = [
            Histogram(
                name,
                "From the moment that members of a placed group were queued again to their binding.",
                buckets=_LONG,
                registry=registry,
            )
            for name in ("topology_scheduler_recovery_duration_seconds", "topology_recovery_duration_seconds")
        ]
        self.waiting = Gauge("gangline_gang_waiting", "Pod groups in the queue.", registry=registry)
        self.partial = Gauge(
            "gangline_gang_partial",
            "Pod groups with fewer bound pods than they need and none on its way to be bound.",
            registry=registry,
        )

    def placed(self, strategy: str, seconds: float, score: float) -> None:
        """The members of a group were given their nodes in this many seconds; score 0..1."""
        self._placements.decided(strategy, "success", seconds)
        self._scores.labels(strategy).observe(score)

    def pod_placed(self, strategy: str, seconds: float) -> None:
        """A single pod was given a node."""
        self._placements.decided(strategy, "success", seconds)

    def rejected(self, strategy: str, seconds: float, is_error: bool) -> None:
        """A pod or a group was given no node."""
        self._placements.decided(strategy, "error" if is_error else "unschedulable", seconds)
        self.errors.labels(f"placement_{strategy}").inc()

    def invalid(self, what: str) -> None:
        """A pod asks for something that cannot be read: invalid_gpu_requirements or invalid_strategy."""
        self.errors.labels(what).inc()

    def pod_bound(self, seconds: float) -> None:
        """A single pod is bound, this many seconds after it was queued."""
        self._placements.to_binding.observe(seconds)

    def bound(self, seconds: float, recovered: bool) -> None:
        """A group is bound, this many seconds after it was queued; `recovered` if some members were bound before."""
        self._placements.to_binding.observe(seconds)
        for recovery in self._recoveries if recovered else ():
            recovery.observe(seconds)
