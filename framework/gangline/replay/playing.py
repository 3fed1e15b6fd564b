"""Plays a trace under one profile: jobs arrive, the scheduler decides, pods run for their duration and end.

Rules:
- Pods run from the moment of their binding; a gang is bound as a whole.
- If a pod is evicted, its job starts again as a whole: the other pods of the gang end too, and all of them wait again,
  to run for their full duration.
- The replay is over when all jobs have ended, at `until`, or when no job runs and none will arrive. In the last case
  the waiting pods are tried once more, and stay waiting if they are rejected. Jobs without a duration run to the end.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from gangline import model
from gangline.clock import rfc3339
from gangline.config import Profile, SchedulerConfiguration
from gangline.config.schema import PluginSet
from gangline.kube.interface import Client
from gangline.loop.scheduler import Options, Scheduler
from gangline.process.memory import collected_rarely
from gangline.profile.recording import SilentRecorder
from gangline.profile.registry import Catalog
from gangline.queueing.backing_off import QueueSettings
from gangline.queueing.units import Place
from gangline.replay import objects
from gangline.replay.client import ReplayClient
from gangline.replay.ledger import NodeLedger, PodAmounts
from gangline.replay.recording import Recording
from gangline.replay.trace import WHOLE, Trace, TraceJob
from gangline.simulate.time import VirtualClock, run
from gangline.wire import texts
from gangline.wire.custom_resources import ALLOCATED

MOST_EVICTIONS = 100
"""Evictions of one job after which the job is given up."""
LEFT_OUT = ("DeviceLease",)
"""Plugins that a replay leaves out: only other schedulers make them necessary, and a replay has one scheduler."""
_PARTS = "GpuClaim"
"""The plugin that gives parts of GPUs."""
_PATIENCE = 3600
"""Virtual seconds that the last tries of the waiting pods may take at the end."""
_STEPS = 8
"""Decisions between which bindings are handled."""

Progress = Callable[[int], None]
"""Called with the number of jobs that have come so far."""


def nobody(jobs: int) -> None:
    """A Progress that does nothing."""


@dataclass(slots=True, eq=False)
class Run:
    """A job that has arrived."""

    number: int
    job: TraceJob
    waits_since: float
    pods: dict[str, PodAmounts | None]
    """By UID; None while the pod waits."""
    objects: dict[str, model.Pod] = field(default_factory=dict)
    """By UID; without a node."""
    evictions: int = 0
    has_started: bool = False
    is_running: bool = False
    """Whether all pods have their nodes."""
    began: float = 0.0
    """When all pods had their nodes."""
    end: asyncio.TimerHandle | None = None


class Player:
    """One replay."""

    def __init__(self, trace: Trace, config: SchedulerConfiguration, profile: Profile, seed: int) -> None:
        """Raises ConfigError and PluginError."""
        self._trace = trace
        self._name = profile.scheduler_name
        self.clock = VirtualClock()
        client = ReplayClient(self._bound, self._evicted)
        steps = itertools.count()
        options = Options(
            seed=seed,
            tells_expected_nodes=False,
            stopwatch=lambda: next(steps) / (_STEPS * 250),
            recorder=SilentRecorder,
        )
        settings = msgspec.structs.replace(config, profiles=(_without(profile),), extenders=())
        self._scheduler = scheduler = Scheduler(settings, _client(client), self.clock, Catalog.discover(), options)
        scheduler.queue.configure(
            QueueSettings(float(config.pod_initial_backoff_seconds), float(config.pod_max_backoff_seconds), _PATIENCE)
        )
        self.parts = _PARTS in scheduler.runtimes[self._name].profile.plugins
        """Whether the profile gives parts of GPUs."""
        objects.fill(scheduler.cache, trace.nodes, trace.jobs if self.parts else (), reports=self.parts)
        jobs = trace.jobs if self.parts else [replace(job, milli=WHOLE) if job.is_part else job for job in trace.jobs]
        self._jobs: Sequence[TraceJob] = jobs
        self.ledger = NodeLedger(trace.nodes, jobs)
        self.recording = Recording(trace, self.ledger)
        self._of: dict[str, Run] = {}
        """By the UID of each pod that waits or runs."""
        self._running = 0
        """Jobs that run and will end."""
        self._ended_one = asyncio.Event()

    def play(self, until: float | None = None, progress: Progress = nobody) -> Recording:
        """Play the trace to its end, or for `until` virtual seconds."""
        began = time.process_time()
        with collected_rarely():
            run(self._story(until, progress), self.clock)
        recording = self.recording
        series = [(each.algorithm_seconds, each.group_seconds) for each in self._scheduler.runtimes.values()]
        recording.decisions = sum(each.count for pair in series for each in pair)
        recording.cpu_seconds = time.process_time() - began
        return recording

    async def _story(self, until: float | None, progress: Progress) -> None:
        deciding = asyncio.create_task(self._scheduler.decide_only())
        telling = asyncio.create_task(self._come(progress))
        sampling = asyncio.create_task(self._sample())
        over = asyncio.create_task(self._over(telling))
        works = {deciding, telling, sampling, over}
        try:
            await asyncio.wait({deciding, over}, timeout=until, return_when=asyncio.FIRST_COMPLETED)
            for task in works:
                if task.done():
                    task.result()
            self.recording.end(self.clock.monotonic())
        finally:
            for task in works:
                task.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    async def _come(self, progress: Progress) -> None:
        for number, job in enumerate(self._jobs):
            if (pause := job.arrival - self.clock.monotonic()) > 0:
                await asyncio.sleep(pause)
            self.recording.came(job)
            self._wait(Run(number, job, self.clock.monotonic(), {}))
            progress(number + 1)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(self.recording.interval)
            self.recording.sample(self.clock.monotonic())

    async def _over(self, telling: asyncio.Task[None]) -> None:
        """Return when nothing can happen any more."""
        await asyncio.wait((telling,))
        while self._running or self._is_busy():
            await self._something_ends()
        self._scheduler.try_all_again()
        await asyncio.sleep(1.0)
        while self._running or self._is_busy():
            await self._something_ends()

    async def _something_ends(self) -> None:
        """Wait until a job has ended, or if none runs, a second."""
        if not self._running:
            await asyncio.sleep(1.0)
            return
        self._ended_one.clear()
        await self._ended_one.wait()

    def _is_busy(self) -> bool:
        counts, binder = self._scheduler.queue.counts(), self._scheduler.binder
        return bool(counts[Place.ACTIVE] + counts[Place.BACKOFF] + binder.pending + binder.slow)

    def _wait(self, this: Run) -> None:
        """Let the pods of a job arrive, for the first time or after an eviction."""
        name = f"job-{this.number}" if not this.evictions else f"job-{this.number}-{this.evictions}"
        this.pods, this.objects = {}, {}
        now = rfc3339(self.clock.now())
        for pod in objects.pods_of(this.job, name, self._name, self.parts, now):
            this.pods[pod.metadata.uid] = None
            this.objects[pod.metadata.uid] = pod
            self._of[pod.metadata.uid] = this
            self._scheduler.pods.upsert(pod)

    def _bound(self, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """The scheduler has bound a pod. It is told so a moment later, as by a watch."""
        this, now = self._of.get(uid), self.clock.monotonic()
        if this is None:
            return
        self.recording.advance(now)
        ids = texts.device_ids(annotations.get(ALLOCATED, ""))
        this.pods[uid] = self.ledger.take(node, this.job, ids, this.job.milli)
        asyncio.get_running_loop().call_soon(self._confirm, this, uid, node, annotations)
        if any(taken is None for taken in this.pods.values()):
            return
        self.recording.started(this.job, now - this.waits_since, not this.has_started)
        this.has_started, this.is_running, this.began = True, True, now
        if this.job.duration is not None:
            self._running += 1
            this.end = asyncio.get_running_loop().call_later(this.job.duration, self._ended, this)

    def _confirm(self, this: Run, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        if this.pods.get(uid) is None:
            return  # the pod has ended already
        pod = this.objects.pop(uid)
        metadata = msgspec.structs.replace(
            pod.metadata, annotations={**(pod.metadata.annotations or {}), **annotations}
        )
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        self._scheduler.pods.upsert(msgspec.structs.replace(pod, metadata=metadata, spec=spec))

    def _ended(self, this: Run) -> None:
        """The pods of a job have run for their time."""
        this.end = None  # this timer refers to the job
        self._running -= 1
        self._ended_one.set()
        self._leave(this)
        self.recording.finished(this.job)

    def _leave(self, this: Run) -> None:
        self.recording.advance(self.clock.monotonic())
        for uid, taken in this.pods.items():
            self._of.pop(uid, None)
            if taken is not None:
                self.ledger.give_back(taken)
        uids, this.pods = list(this.pods), {}
        for uid in uids:
            self._scheduler.pods.remove(objects.NAMESPACE, uid, uid)

    def _evicted(self, uid: str) -> None:
        """The scheduler has removed a pod: its job waits again."""
        this, now = self._of.get(uid), self.clock.monotonic()
        if this is None:
            return
        if this.end is not None:
            this.end.cancel()
            self._running -= 1
            self._ended_one.set()
        gone = sum(taken is not None for taken in this.pods.values())
        self.recording.evicted(this.job, gone, now - this.began if this.is_running else None)
        self._leave(this)
        this.end, this.is_running, this.evictions, this.waits_since = None, False, this.evictions + 1, now
        if this.evictions < MOST_EVICTIONS:
            asyncio.get_running_loop().call_soon(self._wait, this)


def _client(client: ReplayClient) -> Client:
    return client


def _without(profile: Profile) -> Profile:
    """The profile without the plugins that a replay leaves out."""
    points = {}
    for point, plugins in zip(profile.plugins.__struct_fields__, msgspec.structs.astuple(profile.plugins), strict=True):
        enabled = tuple(each for each in plugins.enabled if each.name not in LEFT_OUT)
        disabled = plugins.disabled
        if enabled != plugins.enabled:
            points[point] = PluginSet(enabled, disabled)
    kept = tuple(each for each in profile.plugin_config if each.name not in LEFT_OUT)
    return replace(profile, plugins=msgspec.structs.replace(profile.plugins, **points), plugin_config=kept)
