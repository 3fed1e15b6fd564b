"""Numbers for Prometheus: cheap to record in the hot path, named as kube-scheduler names them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gangline.group_metrics import GroupMetrics

PLUGIN_BUCKETS = tuple(1e-6 * 2**i for i in range(20))
"""Seconds: 1 us to 0.5 s."""
ATTEMPT_BUCKETS = tuple(1e-5 * 2**i for i in range(20))
"""Seconds: 10 us to 5 s."""
WAIT_BUCKETS = tuple(0.01 * 2**i for i in range(20))
"""Seconds: 10 ms to 1.5 h."""


class Series:
    """One histogram series, kept as plain numbers."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values were seen."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts as Prometheus wants them."""
        total = 0
        result = []
        for bound, count in zip((*self._bounds, float("inf")), self.counts, strict=True):
            total += count
            result.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
        return result


class Timings(Collector):
    """Histograms by label values that are read only when Prometheus asks; recording costs well under a microsecond."""

    def __init__(self, name: str, help: str, labels: tuple[str, ...], bounds: tuple[float, ...]) -> None:
        self._name = name
        self._help = help
        self._labels = labels
        self._bounds = bounds
        self._series: dict[tuple[str, ...], Series] = {}

    def series(self, *labels: str) -> Series:
        """The series of these label values; keep it and call `observe`."""
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = Series(self._bounds)
        return found

    def items(self) -> Iterable[tuple[tuple[str, ...], Series]]:
        """All series by their label values."""
        return self._series.items()

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for labels, series in self._series.items():
            family.add_metric(labels, series.buckets(), series.total)
        yield family


def point_label(point: str) -> str:
    """An extension point as kube-scheduler's metrics spell it: pre_filter is PreFilter."""
    return "".join(word.capitalize() for word in point.split("_"))


class Metrics:
    """Every metric of the scheduler."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.plugin_counters: dict[str, Counter] = {}
        """The counters of plugins, by name; profiles share them."""
        self.plugins = Timings(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of one plugin at one extension point.",
            ("extension_point", "plugin"),
            PLUGIN_BUCKETS,
        )
        self.points = Timings(
            "scheduler_framework_extension_point_duration_seconds",
            "Duration of all plugins of one extension point.",
            ("extension_point", "profile"),
            PLUGIN_BUCKETS,
        )
        self.algorithm = Timings(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Duration of one decision: filters, scores and choice.",
            ("profile",),
            ATTEMPT_BUCKETS,
        )
        self.attempts = Timings(
            "scheduler_scheduling_attempt_duration_seconds",
            "From taking a pod off the queue to its decision or binding.",
            ("result", "profile"),
            ATTEMPT_BUCKETS,
        )
        self.sli = Timings(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From queueing a pod to its binding, without the time it was gated.",
            ("attempts",),
            WAIT_BUCKETS,
        )
        self.binding = Timings(
            "gangline_binding_duration_seconds",
            "Duration of one binding cycle.",
            ("result",),
            ATTEMPT_BUCKETS,
        )
        self.group_decision = Timings(
            "gangline_gang_decision_seconds",
            "Duration of one decision on a whole pod group.",
            ("profile",),
            ATTEMPT_BUCKETS,
        )
        for timings in (
            self.group_decision,
            self.plugins,
            self.points,
            self.algorithm,
            self.attempts,
            self.sli,
            self.binding,
        ):
            registry.register(timings)
        self.attempts_total = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule, by result: scheduled, unschedulable, error.",
            ("result", "profile"),
            registry=registry,
        )
        self.pending = Gauge(
            "scheduler_pending_pods",
            "Pods in the queue: active, backoff, unschedulable, gated.",
            ("queue",),
            registry=registry,
        )
        self.groups = GroupMetrics(registry)
        self.invalid_objects = Counter(
            "gangline_invalid_objects",
            "Objects from the API server that could not be used.",
            ("resource",),
            registry=registry,
        )
        self.informer_relists = Gauge(
            "gangline_informer_relists",
            "Full lists since the start, the first one too.",
            ("resource",),
            registry=registry,
        )
        self.events_dropped = Counter(
            "gangline_events_dropped",
            "Kubernetes events that were not written because too many were waiting.",
            registry=registry,
        )
        self.is_leader = Gauge(
            "leader_election_master_status",
            "Whether this process leads.",
            ("name",),
            registry=registry,
        )
        self.cache_size = Gauge(
            "scheduler_scheduler_cache_size",
            "What the cache holds: nodes, pods, assumed_pods.",
            ("type",),
            registry=registry,
        )
