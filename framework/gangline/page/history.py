"""How full and how fragmented the cluster was over the last hours, how long pods waited, and how long decisions took.

A sample is taken every `EVERY` seconds, even if nobody looks, so that later viewers see the past. At most `MOST`
samples are kept, as plain tuples of numbers. Durations come from the histograms of the metrics: a sample has the counts
since the sample before.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np

from gangline.api.plugin import Clock
from gangline.overview.gpu_use import Gathered, catch_up, counted, gather
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Place
from gangline.state.cache import Cache
from gangline.telemetry.metrics import Metrics
from gangline.telemetry.series import Series

EVERY = 30.0
"""Seconds between two samples."""
MOST = 720
"""Samples that are kept, at most: six hours."""
_LOOKED_AT = 1000
"""Units of the queue, at most, among which the longest wait is looked for."""


class PastSample(NamedTuple):
    """The cluster at one time, and the bindings and decisions since the sample before. Durations are in seconds."""

    at: int
    """Seconds since 1970."""
    gpus: int
    used: int
    stranded: int
    """Free GPUs of nodes on which other GPUs are in use."""
    waiting: int
    """Pods in the queue."""
    longest: int
    """The longest waiting time of a unit in the queue; gated units do not count."""
    placed: int
    """Pods that were bound since the sample before."""
    wait: float
    """The median of the waiting times of these pods."""
    long_wait: float
    """The 90th percentile of the waiting times of these pods."""
    decisions: int
    latency: float
    """The median of the durations of decisions."""
    long_latency: float
    """The 99th percentile of the durations of decisions."""


class ClusterHistory:
    """The last samples. All methods are called in the thread that owns the columns."""

    def __init__(self, cache: Cache, queue: SchedulingQueue, metrics: Metrics, clock: Clock) -> None:
        self._cache = cache
        self._queue = queue
        self._metrics = metrics
        self._clock = clock
        self._samples: deque[PastSample] = deque(maxlen=MOST)
        self._waits: Sequence[int] = ()
        self._decisions: Sequence[int] = ()
        self.taken = 0
        """The number of samples that were taken since the start."""

    async def keep(self) -> None:
        """Take samples until cancelled; the counting is done in another thread."""
        while True:
            await asyncio.sleep(EVERY)
            for _ in catch_up(self._cache):
                await asyncio.sleep(0)
            self._note(await asyncio.to_thread(_counts, self._gathered()))

    def sample(self) -> None:
        """Take a sample now."""
        self._note(_counts(self._gathered()))

    def since(self, taken: int) -> list[PastSample]:
        """The kept samples after the first `taken` samples."""
        new = min(self.taken - taken, len(self._samples))
        return list(islice(self._samples, len(self._samples) - new, None))

    def _gathered(self) -> Gathered:
        return gather(self._cache.nodes.view(), self._cache)

    def _note(self, counts: tuple[int, int, int]) -> None:
        metrics = self._metrics
        waits, wait_bounds = _summed(series for _, series in metrics.sli.items())
        decided = [series for timings in (metrics.algorithm, metrics.group_decision) for _, series in timings.items()]
        decisions, bounds = _summed(decided)
        new_waits, new_decisions = _grown(waits, self._waits), _grown(decisions, self._decisions)
        self._waits, self._decisions = waits, decisions
        self._samples.append(
            PastSample(
                round(self._clock.now()),
                *counts,
                sum(self._queue.counts().values()),
                self._longest(),
                sum(new_waits),
                quantile(0.5, new_waits, wait_bounds),
                quantile(0.9, new_waits, wait_bounds),
                sum(new_decisions),
                quantile(0.5, new_decisions, bounds),
                quantile(0.99, new_decisions, bounds),
            )
        )
        self.taken += 1

    def _longest(self) -> int:
        units = islice(self._queue, _LOOKED_AT)
        since = min((unit.added for unit in units if unit.place is not Place.GATED), default=None)
        return 0 if since is None else max(0, round(self._clock.monotonic() - since))


def quantile(part: float, counts: Sequence[int], bounds: Sequence[float]) -> float:
    """The quantile at `part` (0 to 1) of the values in a histogram, in seconds; 0 without values.

    `counts` has one number for each bound, and one for larger values, which count as the largest bound.
    """
    total = sum(counts)
    if not total:
        return 0.0
    sums = list(accumulate(counts))
    place = bisect_left(sums, part * total)
    if place >= len(bounds):
        return bounds[-1]
    below = sums[place - 1] if place else 0
    low = bounds[place - 1] if place else 0.0
    return round(low + (bounds[place] - low) * (part * total - below) / counts[place], 6)


def _summed(many: Iterable[Series]) -> tuple[list[int], Sequence[float]]:
    """The summed counts of series with the same bounds, and the bounds."""
    series = list(many)
    if not series:
        return [], ()
    return [sum(column) for column in zip(*(each.counts for each in series), strict=True)], series[0].bounds


def _grown(now: Sequence[int], before: Sequence[int]) -> list[int]:
    return [mine - its for mine, its in zip(now, before, strict=True)] if before else [*now]


def _counts(gathered: Gathered) -> tuple[int, int, int]:
    """GPUs, GPUs in use, and free GPUs of nodes that are partly in use."""
    use = counted(gathered)
    free = np.maximum(0, use.total - use.used)
    return int(use.total.sum()), int(use.used.sum()), int(free[use.used > 0].sum())
