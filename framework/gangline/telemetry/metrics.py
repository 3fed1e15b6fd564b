"""Numbers for Prometheus: cheap to record in the hot path, named as kube-scheduler names them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gangline.failures import Failures
from gangline.telemetry.exposition import Family, head, labels
from gangline.telemetry.group_metrics import GroupMetrics
from gangline.telemetry.plugin_metrics import PluginMetrics
from gangline.telemetry.series import Series as Series

log = logging.getLogger(__name__)

PLUGIN_BUCKETS = tuple(1e-6 * 2**i for i in range(20))
"""Seconds: 1 us to 0.5 s."""
ATTEMPT_BUCKETS = tuple(1e-5 * 2**i for i in range(20))
"""Seconds: 10 us to 5 s."""
WAIT_BUCKETS = tuple(0.01 * 2**i for i in range(20))
"""Seconds: 10 ms to 1.5 h."""


class Timings:
    """Histograms by label values that are read only when Prometheus asks; recording costs well under a microsecond.

    A series without values is left out, unless ``empty`` is set.
    """

    def __init__(
        self, name: str, help: str, labels: tuple[str, ...], bounds: tuple[float, ...], empty: bool = False
    ) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._bounds = bounds
        self._empty = empty
        self._series: dict[tuple[str, ...], Series] = {}

    def series(self, *values: str) -> Series:
        """The series of these label values; keep it and call `observe`."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Series(self._bounds)
        return found

    def items(self) -> Iterable[tuple[tuple[str, ...], Series]]:
        """All series by their label values."""
        return tuple(self._series.items())

    def lines(self) -> Iterator[str]:
        """See Family; other threads may add series meanwhile."""
        yield head(self.name, "histogram", self.help)
        for values, series in self.items():
            if series.count or self._empty:
                yield from series.lines(self.name, labels(self.labels, values))


def point_label(point: str) -> str:
    """An extension point as kube-scheduler's metrics spell it: pre_filter is PreFilter."""
    return "".join(word.capitalize() for word in point.split("_"))


class _InUse(Collector):
    """The metrics of the plugins in use, whichever these are when Prometheus asks."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.of_plugins.collect()


class Metrics:
    """Every metric of the scheduler."""

    def fault(self, doing: str, error: BaseException) -> None:
        """Count a fault of the scheduler and log its traceback; the work goes on."""
        self.faults.labels(doing).inc()
        log.error("%s went wrong: %r", doing, error, exc_info=error)

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
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
            empty=True,  # alerts look at the rate of failures, which needs a zero to begin from
        )
        self.group_decision = Timings(
            "gangline_gang_decision_seconds",
            "Duration of one decision on a whole pod group.",
            ("profile",),
            ATTEMPT_BUCKETS,
        )
        self.timings = (
            self.group_decision,
            self.plugins,
            self.points,
            self.algorithm,
            self.attempts,
            self.sli,
            self.binding,
        )
        self.families: list[Family] = [*self.timings]
        """Metrics outside of the registry that write their own lines; the scheduler adds its own."""
        self.attempts_total = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule, by result: scheduled, unschedulable, error.",
            ("result", "profile"),
            registry=registry,
        )
        self.overruns = Counter(
            "gangline_decisions_past_deadline",
            "Decisions that were given up because they took longer than --pod-deadline or --gang-deadline allow.",
            ("profile",),
            registry=registry,
        )
        self.pending = Gauge(
            "scheduler_pending_pods",
            "Pods in the queue: active, backoff, unschedulable, gated.",
            ("queue",),
            registry=registry,
        )
        self.groups = GroupMetrics(registry)
        self.failures = Failures()
        registry.register(self.failures.failed)
        registry.register(self.failures.held)
        self.of_plugins = PluginMetrics(registry, {self.groups.ERRORS: self.groups.errors})
        """What the plugins of the configuration in use have registered."""
        registry.register(_InUse(self))
        self.invalid_objects = Counter(
            "gangline_invalid_objects",
            "Objects from the API server that could not be used.",
            ("resource",),
            registry=registry,
        )
        self.faults = Counter(
            "gangline_faults",
            "Faults of the scheduler itself, by what it was doing; each is in the log with its traceback.",
            ("doing",),
            registry=registry,
        )
        self.set_aside = Gauge(
            "gangline_set_aside_objects",
            "Objects that cannot be used and are set aside until they change.",
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
