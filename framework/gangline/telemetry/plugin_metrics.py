"""The metrics that the plugins of one configuration register; they exist while the configuration is in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gangline.telemetry.distribution import Distribution

M = TypeVar("M", Counter, Gauge, Histogram, Distribution)
Shape = tuple[type[Any], tuple[str, ...], tuple[float, ...]]
"""The kind, the labels and the buckets of a metric."""


class _Name(Collector):
    """The name of a metric without its samples: a scrape that comes while it is registered shows nothing twice."""

    def __init__(self, metric: Counter | Gauge | Histogram | Distribution) -> None:
        self._metric = metric

    def describe(self) -> Iterable[Metric]:
        return self._metric.describe()

    def collect(self) -> Iterable[Metric]:
        return ()


class PluginMetrics(Collector):
    """One metric for each name, the same for all plugins and profiles.

    A metric of the previous configuration with the same name, kind, labels and buckets goes on counting.
    """

    def __init__(
        self,
        framework: CollectorRegistry,
        common: Mapping[str, tuple[Counter, tuple[str, ...]]],
        before: PluginMetrics | None = None,
    ) -> None:
        """`common` has the counters of the framework that plugins may ask for, with their labels."""
        self._framework = framework
        self._common = common
        self._before = before._known if before is not None else {}
        self._known: dict[str, tuple[Shape, Any]] = {}
        self.registry = CollectorRegistry()

    def __len__(self) -> int:
        return len(self._known)

    def successor(self) -> PluginMetrics:
        """The metrics of the plugins of the next configuration."""
        return PluginMetrics(self._framework, self._common, self)

    def get(
        self, kind: type[M], name: str, help: str, labels: Sequence[str], buckets: Sequence[float] | None = None
    ) -> M:
        """The metric of that name. Raises ValueError if it has another kind or other labels, or is no plugin's metric.

        The buckets are those of the first call.
        """
        shape = (kind, tuple(labels), tuple(buckets or ()))
        if name in self._common:
            counter, common_labels = self._common[name]
            known: tuple[Shape, Any] = (Counter, common_labels, ()), counter
        elif name in self._known:
            known = self._known[name]
        else:
            known = self._known[name] = shape, self._registered(shape, name, help)
        has_kind, has_labels, _ = known[0]
        if has_kind is not kind:
            raise ValueError(f"{name} is a {has_kind.__name__}, not a {kind.__name__}")
        if has_labels != shape[1]:
            raise ValueError(f"{name} has the labels {has_labels}, not {shape[1]}")
        return cast(M, known[1])

    def _registered(self, shape: Shape, name: str, help: str) -> Any:
        before = self._before.get(name)
        if before is not None and before[0] == shape:
            metric = before[1]
        else:
            kind, labels, buckets = shape
            metric = kind(name, help, labels, registry=None, **({"buckets": buckets} if buckets else {}))
            name_alone = _Name(metric)
            self._framework.register(name_alone)  # raises where the name is taken
            self._framework.unregister(name_alone)
        self.registry.register(metric)
        return metric

    def collect(self) -> Iterator[Metric]:
        """For the registry of the framework."""
        return iter(self.registry.collect())
