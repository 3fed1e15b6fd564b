"""Work that is due once a second, without any event: trackers are mended, and gauges updated."""

from __future__ import annotations

import asyncio
from collections import Counter

from gangline.api.plugin import Clock
from gangline.loop.census import Census
from gangline.loop.following import Informers
from gangline.overview.topology_metrics import TopologyMetrics
from gangline.state.cache import Cache
from gangline.telemetry.metrics import Metrics

PAUSE = 1.0
"""Seconds between two looks."""
MENDING = 30
"""Seconds until a tracker that is out of step and could not be repaired is tried again."""


class Housekeeping:
    """Looks after the cache, and hands its numbers to the metrics; for leaders and standbys alike."""

    def __init__(self, cache: Cache, clock: Clock, informers: Informers, census: Census, metrics: Metrics) -> None:
        self._cache = cache
        self._clock = clock
        self._informers = informers
        self._census = census
        self._metrics = metrics
        # `labels` costs more than `set`: each series is asked for once.
        self._nodes, self._pods, self._assumed = map(metrics.cache_size.labels, ("nodes", "pods", "assumed_pods"))
        self._sizes: tuple[int, int, int] | None = None
        """What the gauges say of the cache."""
        self._lists: list[tuple[str, int]] = []
        """The resource of each informer, and its number of lists, when the gauges were set."""
        self.topology_metrics = TopologyMetrics(cache)
        metrics.families.append(self.topology_metrics)

    async def run(self) -> None:
        """Tidy until cancelled."""
        while True:
            await asyncio.sleep(PAUSE)
            try:
                self.tidy()
            except Exception as error:
                self._metrics.fault("housekeeping", error)

    def tidy(self) -> None:
        """Mend trackers, and update the gauges."""
        now = self._clock.monotonic()
        if self._cache.trackers.broken and int(now) % MENDING == 0:
            self._cache.mend_trackers(again=True)
        self._census.look(now)
        self.topology_metrics.take()
        self._tell_relists()
        self._tell_sizes()

    def _tell_sizes(self) -> None:
        """Set the gauges of the cache if a number has changed: to set a gauge takes a lock."""
        sizes = self._cache.nodes.count, len(self._cache.pods), self._cache.assumed
        if sizes != self._sizes:
            self._sizes = sizes
            for gauge, number in zip((self._nodes, self._pods, self._assumed), sizes, strict=True):
                gauge.set(number)

    def _tell_relists(self) -> None:
        """Set the gauges if a number has changed, which is rare. All informers of a resource count together."""
        lists = [(informer.resource.key, informer.relists) for informer in self._informers]
        if lists == self._lists:
            return
        relists: Counter[str] = Counter()
        for resource, number in lists:
            relists[resource] += number
        for resource in {resource for resource, _ in self._lists} - relists.keys():
            self._metrics.informer_relists.remove(resource)
        for resource, number in relists.items():
            self._metrics.informer_relists.labels(resource).set(number)
        self._lists = lists
