"""Objects that are created while a simulation runs, and samples of the simulated cluster over time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gangline.api.plugin import Clock
from gangline.config.explaining import quoted
from gangline.kube.resources import PODS
from gangline.loop.scheduler import Scheduler
from gangline.overview.gpu_use import gpu_use
from gangline.simulate.accuracy import accuracy
from gangline.simulate.manifests import Manifest, seconds_of
from gangline.simulate.server import InMemoryServer

ARRIVE_SECONDS = "gangline.dev/arrive-seconds"
"""On any object: after how many simulated seconds the object is created; without the annotation it exists from the
start."""

Arrival = tuple[float, list[Manifest]]


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one time; deleted pods do not count."""

    seconds: float
    """Seconds since the start."""
    arrived: int
    """Existing pods, also finished ones."""
    queued: int
    """Pods without a node."""
    running: int
    finished: int
    gpus: int
    gpus_used: int
    success_rate: float
    """The fraction of the existing pods that have a node or have ended, 0..1; 1 if there are no pods."""
    utilization: float
    """The part of all GPUs that is in use, 0..1; 0 if there are no GPUs."""
    accuracy: float
    """The part of the groups that are as close together as they should be, 0..1; 1 without groups (see `accuracy`)."""


def by_arrival(found: Iterable[Manifest]) -> list[Arrival]:
    """The objects by the second of their creation, from 0; within a second, objects that others refer to come first.

    Raises ConfigError for an annotation that cannot be read.
    """
    groups: dict[float, list[Manifest]] = {0.0: []}
    for manifest in found:
        groups.setdefault(_arrival(manifest), []).append(manifest)
    return sorted(groups.items(), key=lambda group: group[0])


async def arrive(server: InMemoryServer, late: Sequence[Arrival], warnings: list[str]) -> None:
    """Create each object at its time; returns after the last one. Raises ConfigError."""
    now = 0.0
    for seconds, manifests in late:
        await asyncio.sleep(seconds - now)
        now = seconds
        warnings += [each for each in server.load_manifests(manifests) if each not in warnings]


async def watch(server: InMemoryServer, scheduler: Scheduler, clock: Clock, every: float, into: list[Sample]) -> None:
    """Take a sample every so many seconds, until cancelled."""
    start = clock.monotonic()
    while True:
        await asyncio.sleep(every)
        into.append(sample(server, scheduler, clock.monotonic() - start))


def sample(server: InMemoryServer, scheduler: Scheduler, seconds: float) -> Sample:
    """A sample of the cluster now."""
    phases = list(_phases(server))
    queued = sum(not has_node and phase not in _OVER for has_node, phase in phases)
    finished = sum(phase in _OVER for _, phase in phases)
    use = gpu_use(scheduler.cache)
    total, used = int(use.total.sum()), int(use.used.sum())
    return Sample(
        seconds=seconds,
        arrived=len(phases),
        queued=queued,
        running=len(phases) - queued - finished,
        finished=finished,
        gpus=total,
        gpus_used=used,
        success_rate=1.0 - queued / len(phases) if phases else 1.0,
        utilization=used / total if total else 0.0,
        accuracy=accuracy(scheduler.runtimes),
    )


_OVER = ("Succeeded", "Failed")


def _phases(server: InMemoryServer) -> Iterator[tuple[bool, str]]:
    """For each pod: whether it has a node, and its phase."""
    for pod in server.list(PODS):
        yield bool(pod.data["spec"].get("nodeName")), pod.data.get("status", {}).get("phase", "")


def _arrival(manifest: Manifest) -> float:
    metadata = manifest.data.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(ARRIVE_SECONDS) if isinstance(annotations, dict) else None
    if text is None:
        return 0.0
    seconds = seconds_of(text)
    if seconds is None:
        raise manifest.error(f"metadata.annotations[{ARRIVE_SECONDS}]", f"{quoted(text)}: not a number of seconds")
    return seconds
