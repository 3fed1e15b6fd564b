"""What is noted while a trace is played: waiting times, evictions, and the use of the cluster over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangline.replay.ledger import NodeLedger
from gangline.replay.trace import WHOLE, Trace, TraceJob

MOST_SAMPLES = 400
"""Samples that are kept; when there are more, every second one is dropped and the interval doubles."""
_LONGER = 1.1
"""After the last arrival, each interval between samples is longer than the one before by this factor: some jobs run for
months."""


@dataclass(frozen=True, slots=True)
class ReplaySample:
    """The cluster at one time, in fractions of all GPUs, 0..1."""

    seconds: float
    allocated: float
    """GPUs that pods have."""
    wanted: float
    """GPUs that running and waiting pods ask for; may be more than 1."""
    fragmented: float
    """Free GPUs that the pods of the trace cannot use: see `ledger`."""
    waiting: int
    """Pods without a node."""
    evictions: int
    """Pods evicted so far."""


class Recording:
    """The notes of one replay. Each method is called with virtual seconds since the start."""

    def __init__(self, trace: Trace, ledger: NodeLedger) -> None:
        self.ledger = ledger
        last = max((job.arrival for job in trace.jobs), default=0.0)
        self.interval = max(1.0, last / (MOST_SAMPLES // 2))
        self.last_arrival = last
        self.samples: list[ReplaySample] = []
        self.waits: list[float] = []
        """Seconds from the arrival of each job to its first start."""
        self.waited_pods: list[int] = []
        """The pods of these jobs."""
        self.running = self.waiting = self.done = 0
        """Numbers of pods."""
        self.jobs = self.evictions = 0
        self.never_started = 0
        """Pods of jobs that have come and never started."""
        self.lost_gpu_seconds = 0.0
        """GPU-seconds for which jobs had run before they were evicted."""
        self.decisions = 0
        self.cpu_seconds = 0.0
        self.seconds = 0.0
        """When the replay ended."""
        self._wanted = 0
        self._then = 0.0
        self._area = [0.0] * 4
        self._area_of_arrivals: list[float] | None = None

    def advance(self, now: float) -> None:
        """Time has passed; called before each change of the ledger."""
        if self._area_of_arrivals is None and now > self.last_arrival:
            self._pass(self.last_arrival)
            self._area_of_arrivals = self._area
        if now != self._then:
            self._pass(now)

    def _pass(self, now: float) -> None:
        span = now - self._then
        self._area = [area + used * span for area, used in zip(self._area, self.ledger.used, strict=True)]
        self._then = now

    def came(self, job: TraceJob) -> None:
        """A job has come."""
        self.jobs += 1
        self.waiting += job.pods
        self.never_started += job.pods
        self._wanted += job.demand

    def started(self, job: TraceJob, waited: float, is_first: bool) -> None:
        """All pods of a job have their nodes."""
        self.waiting -= job.pods
        self.running += job.pods
        if is_first:
            self.never_started -= job.pods
            self.waits.append(waited)
            self.waited_pods.append(job.pods)

    def finished(self, job: TraceJob) -> None:
        """The pods of a job have run for their time."""
        self.running -= job.pods
        self.done += job.pods
        self._wanted -= job.demand

    def evicted(self, job: TraceJob, pods: int, ran: float | None) -> None:
        """So many pods of a job have lost their nodes. If all its pods had nodes, they had run for `ran` seconds."""
        self.evictions += pods
        if ran is not None:
            self.running -= job.pods
            self.waiting += job.pods
            self.lost_gpu_seconds += ran * job.demand / WHOLE

    def sample(self, now: float) -> None:
        """Note the cluster as it is."""
        total = self.ledger.total[0] or 1.0
        self.samples.append(
            ReplaySample(
                now,
                float(self.ledger.used[0] / total),
                float(self._wanted / total),
                self.ledger.fragmentation(),
                self.waiting,
                self.evictions,
            )
        )
        if now > self.last_arrival:
            self.interval *= _LONGER
        if len(self.samples) > MOST_SAMPLES:
            self.samples = self.samples[1::2]
            self.interval *= 2

    def end(self, now: float) -> None:
        """The replay is over."""
        self.advance(now)
        self.sample(now)
        self.seconds = now

    def mean_use(self) -> np.ndarray:
        """The mean fractions of GPUs, CPU, memory and nodes in use, 0..1, until the last job arrived; if all jobs
        arrived at once, until the end.
        """
        area, span = self._area, self.seconds
        if self._area_of_arrivals is not None and self.last_arrival > 0:
            area, span = self._area_of_arrivals, self.last_arrival
        whole = self.ledger.total * span
        return np.divide(np.array(area), whole, out=np.zeros(4), where=whole > 0)
