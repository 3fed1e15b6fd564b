"""A histogram that counts a value any number of times at once, for plugins that decide about many like pods at once.

The histograms of prometheus_client take one value at a time, which costs a gang of a thousand pods a millisecond.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gangline.telemetry.series import Series


class Distribution(Collector):
    """A histogram without labels; its samples are those of a histogram of prometheus_client."""

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), registry: None = None, buckets: Sequence[float] = ()
    ) -> None:
        """`labels` and `registry` are those of other metrics. Raises ValueError for labels and for buckets that do not
        grow.
        """
        if labels or registry is not None:
            raise ValueError(f"{name} is a distribution, which has neither labels nor a registry")
        bounds = tuple([float(each) for each in buckets])
        if not bounds or any(not low < high for low, high in itertools.pairwise(bounds)):
            raise ValueError(f"the buckets of {name} are not numbers that grow")
        self._name = name
        self._help = help
        self._series = Series(bounds)
        self._names = [*map(floatToGoString, bounds), "+Inf"]

    def observe(self, value: float, number: int = 1) -> None:
        """Count a value so many times."""
        self._series.observe_many(value, number)

    def describe(self) -> Iterator[Metric]:
        """For the registry."""
        yield HistogramMetricFamily(self._name, self._help, labels=())

    def collect(self) -> Iterator[Metric]:
        """For the registry; other threads may observe meanwhile."""
        found = HistogramMetricFamily(self._name, self._help, labels=())
        buckets = [count for _, count in self._series.buckets()]
        found.add_metric((), list(zip(self._names, buckets, strict=True)), self._series.total)
        yield found
