"""A trace: jobs with their arrivals and durations, and the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

WHOLE = 1000
"""Thousandths of a GPU."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node: milli-CPU, MiB, GPUs and their model; "" if that is not known."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Equal pods that start together: one pod, or a gang."""

    arrival: float
    """Seconds since the trace began."""
    duration: float | None
    """Seconds for which each pod runs; None: to the end of the trace."""
    pods: int = 1
    gpus: int = 0
    """GPUs of each pod."""
    milli: int = 0
    """Thousandths that a pod takes of each of its GPUs; 0 without GPUs."""
    cpu: int = 0
    """Milli-CPU of each pod."""
    memory: int = 0
    """MiB of each pod."""
    priority: int = 0
    models: tuple[str, ...] = ()
    """The models of GPUs that the pods accept; empty for any model."""

    @property
    def demand(self) -> int:
        """Thousandths of GPUs, of all pods."""
        return self.pods * self.gpus * self.milli

    @property
    def is_part(self) -> bool:
        """Whether the pods take parts of GPUs."""
        return 0 < self.milli < WHOLE


@dataclass(slots=True)
class Trace:
    """The content of the files of a trace."""

    jobs: Sequence[TraceJob] = ()
    """In the order of their arrivals."""
    nodes: list[TraceNode] = field(default_factory=list)

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(job.pods for job in self.jobs)
