"""Numbers for Prometheus: cheap to record in the hot path, named as kube-scheduler names them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gangline.failures import Failures
from gangline.telemetry import families
from gangline.telemetry.exposition import Family, head, labels
from gangline.telemetry.group_metrics import GroupMetrics
from gangline.telemetry.plugin_metrics import PluginMetrics
from gangline.telemetry.series import Series as Series

log = logging.getLogger(__name__)


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


@lru_cache(maxsize=64)
def point_label(point: str) -> str:
    """An extension point as kube-scheduler's metrics spell it: pre_filter is PreFilter."""
    return "".join(word.capitalize() for word in point.split("_"))


class AttemptsTotal(Collector):
    """The number of attempts: that of the durations, which is counted already."""

    def __init__(self, durations: Timings) -> None:
        self._durations = durations

    def describe(self) -> Iterator[CounterMetricFamily]:
        """For the registry."""
        name, text, names = families.ATTEMPTS_TOTAL
        yield CounterMetricFamily(name, text, labels=names)

    def collect(self) -> Iterator[Metric]:
        """For the registry; other threads may count meanwhile."""
        (found,) = self.describe()
        for values, series in self._durations.items():
            found.add_metric(values, series.count)
        yield found


class _InUse(Collector):
    """The metrics of the plugins in use, whichever these are when Prometheus asks."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.of_plugins.collect()


class Metrics:
    """Every metric of the scheduler."""

    def __init__(self, warns_of_slow: bool = True) -> None:
        self.registry = registry = CollectorRegistry()
        self.plugins = Timings(*families.PLUGINS)
        self.points = Timings(*families.POINTS)
        self.algorithm = Timings(*families.ALGORITHM)
        self.attempts = Timings(*families.ATTEMPTS)
        self.sli = Timings(*families.SLI)
        self.binding = Timings(*families.BINDING)
        self.group_decision = Timings(*families.GROUP_DECISION)
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
        registry.register(AttemptsTotal(self.attempts))
        self.overruns = Counter(*families.OVERRUNS, registry=registry)
        self.pending = Gauge(*families.PENDING, registry=registry)
        self.groups = GroupMetrics(registry)
        self.failures = Failures(warns_of_slow=warns_of_slow)
        registry.register(self.failures.failed)
        registry.register(self.failures.held)
        self.of_plugins = PluginMetrics(registry, {self.groups.ERRORS: (self.groups.errors, self.groups.ERROR_LABELS)})
        """What the plugins of the configuration in use have registered."""
        registry.register(_InUse(self))
        self.invalid_objects = Counter(*families.INVALID_OBJECTS, registry=registry)
        self.faults = Counter(*families.FAULTS, registry=registry)
        self.long_bindings = Gauge(*families.LONG_BINDINGS, registry=registry)
        self.set_aside = Gauge(*families.SET_ASIDE, registry=registry)
        self.informer_relists = Gauge(*families.INFORMER_RELISTS, registry=registry)
        self.events_dropped = Counter(*families.EVENTS_DROPPED, registry=registry)
        self.is_leader = Gauge(*families.IS_LEADER, registry=registry)
        self.cache_size = Gauge(*families.CACHE_SIZE, registry=registry)

    def fault(self, doing: str, error: BaseException) -> None:
        """Count a fault of the scheduler and log its traceback; the work goes on."""
        self.faults.labels(doing).inc()
        log.error("%s went wrong: %r", doing, error, exc_info=error)
