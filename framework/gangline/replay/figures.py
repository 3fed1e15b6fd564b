"""The figures of replays: what the table, the JSON and the report show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gangline.replay.recording import Recording, ReplaySample

WAITS = (
    ("under 1 s", 1.0),
    ("1 s to 10 s", 10.0),
    ("10 s to 1 min", 60.0),
    ("1 to 10 min", 600.0),
    ("10 min to 1 h", 3600.0),
    ("1 to 6 h", 6 * 3600.0),
    ("6 to 24 h", 24 * 3600.0),
    ("over 24 h", np.inf),
)
"""Ranges of waiting times, each with the seconds at which it ends."""
NEVER = "never started"


@dataclass(frozen=True, slots=True)
class Waits:
    """Waiting times in seconds, from the arrival of a job to its first start; of the jobs that have started."""

    mean: float
    median: float
    p95: float
    p99: float
    longest: float
    pods: dict[str, int]
    """The number of pods by the range of their waiting time."""


@dataclass(frozen=True, slots=True)
class MeanUse:
    """The mean fractions in use until the last job arrived, 0..1."""

    gpus: float
    cpu: float
    memory: float
    nodes: float
    """Nodes with at least one pod."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one profile."""

    profile: str
    jobs: int
    pods: int
    finished: int
    """Pods that have run to their end."""
    running: int
    """Pods that run at the end."""
    waiting: int
    """Pods that wait at the end."""
    evictions: int
    lost_gpu_hours: float
    """GPU-hours for which pods had run before they were evicted."""
    seconds: float
    """Virtual seconds from the first arrival to the end."""
    waits: Waits
    use: MeanUse
    highest_allocation: float
    """The highest allocation of all samples, 0..1."""
    fragmentation: float
    """The mean fragmentation of the samples until the last job arrived, 0..1."""
    decisions: int
    cpu_seconds: float
    """CPU time of this process for the replay."""
    notes: list[str]
    samples: list[ReplaySample]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A trace under several profiles."""

    trace: list[str]
    """The files."""
    nodes: int
    gpus: int
    jobs: int
    pods: int
    profiles: list[Figures]


def figures(profile: str, recording: Recording, notes: Sequence[str]) -> Figures:
    """The figures of one replay that is over."""
    samples = recording.samples
    while_coming = [each for each in samples if each.seconds <= recording.last_arrival] or samples
    gpus, cpu, memory, nodes = (float(part) for part in recording.mean_use())
    return Figures(
        profile=profile,
        jobs=recording.jobs,
        pods=recording.running + recording.waiting + recording.done,
        finished=recording.done,
        running=recording.running,
        waiting=recording.waiting,
        evictions=recording.evictions,
        lost_gpu_hours=recording.lost_gpu_seconds / 3600,
        seconds=recording.seconds,
        waits=_waits(recording),
        use=MeanUse(gpus, cpu, memory, nodes),
        highest_allocation=max((each.allocated for each in samples), default=0.0),
        fragmentation=float(np.mean([each.fragmented for each in while_coming])) if while_coming else 0.0,
        decisions=recording.decisions,
        cpu_seconds=recording.cpu_seconds,
        notes=list(notes),
        samples=samples,
    )


def _waits(recording: Recording) -> Waits:
    seconds = np.array(recording.waits or [0.0])
    pods = np.array(recording.waited_pods or [0])
    ranges = np.searchsorted([limit for _, limit in WAITS], seconds, side="right")
    counts = np.bincount(ranges, weights=pods, minlength=len(WAITS)).astype(int)
    by_range = {name: int(count) for (name, _), count in zip(WAITS, counts, strict=False)}
    by_range[NEVER] = recording.never_started
    median, p95, p99 = (float(each) for each in np.percentile(seconds, [50, 95, 99]))
    return Waits(float(seconds.mean()), median, p95, p99, float(seconds.max()), by_range)
