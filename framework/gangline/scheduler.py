"""The loop: watch -> cache -> queue -> decide -> bind; the one place where tasks are started."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from gangline.assembly import build_runtimes, group_events, watched_by
from gangline.binding import Binder
from gangline.cache import Cache
from gangline.config import SchedulerConfiguration
from gangline.errors import GanglineError
from gangline.extending import EXTENDER, Asker, Attempt, Extenders, HttpAsker
from gangline.group_scheduling import GroupDecision, decide_group, offer_what_if
from gangline.groups import Groups
from gangline.groups.strategy import strategy_of
from gangline.kube.informer import Informer
from gangline.kube.interface import Client
from gangline.kube.optional import OptionalInformer
from gangline.kube.resources import NODES, PODS, STORED, Selection
from gangline.metrics import Metrics
from gangline.nominating import Nominations, without
from gangline.outcomes import Outcomes
from gangline.plugin import Clock
from gangline.pod_group import Membership
from gangline.pods import PodInfo
from gangline.queueing import QueueSettings, SchedulingQueue
from gangline.recording import EventRecorder
from gangline.registry import Catalog
from gangline.reporting import Reporter
from gangline.runtime import GROUPS, Runtime
from gangline.scheduling import Decision, Rejection, decide
from gangline.topology_metrics import TopologyMetrics
from gangline.units import Unit
from gangline.waiting import WaitingPods
from gangline.watching import Cluster, NodeHandler, PodHandler, StoreHandler

log = logging.getLogger(__name__)

SLICE = 0.004
"""Seconds of deciding after which watch events and bindings get their turn."""
FRESH = 5.0
"""Seconds after the start for which the first lists count as new."""
HOUSEKEEPING = 1.0
"""Seconds between two looks at expired assumptions and gauges."""
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class Options:
    """What is not in KubeSchedulerConfiguration."""

    concurrency: int = 64
    """Bindings under way at the same time."""
    identity: str = "gangline"
    seed: int | None = None
    """Of the random choice among equal nodes; None for a different one at each start."""


class Scheduler:
    """One process: any number of profiles on one cluster."""

    def __init__(
        self,
        config: SchedulerConfiguration,
        client: Client,
        clock: Clock,
        catalog: Catalog,
        options: Options | None = None,
        metrics: Metrics | None = None,
        asker: Asker | None = None,
    ) -> None:
        options = options or Options()
        self.metrics = metrics or Metrics()
        self.cache = Cache()
        self.groups = Groups(self.cache)
        self._topology_metrics = TopologyMetrics(self.cache.nodes)
        self.metrics.registry.register(self._topology_metrics)
        self.waiting = WaitingPods()
        self.recorder = EventRecorder(clock, options.identity)
        self.queue = SchedulingQueue()
        self._clock = clock
        self._started = clock.monotonic()
        self._catalog = catalog
        self._client = client
        self._random = random.Random(options.seed)
        self._wake = asyncio.Event()
        self.reporter = Reporter(
            client, self.recorder, clock, self.metrics, lambda: self.binder.pending, self._still_waiting
        )
        self._cluster = cluster = Cluster(
            self.cache, self.queue, self.waiting, self.recorder, clock, self.metrics, self._wake.set
        )
        self._pods = PodHandler(cluster)
        self.outcomes = outcomes = Outcomes(
            self.cache, self.queue, self.recorder, clock, self.metrics, cluster, self._wake.set
        )
        self.binder = Binder(
            self.waiting, outcomes.finished, clock, self.metrics, options.concurrency, outcomes.group_finished
        )
        self.informers: list[Informer[Any]] = [
            *(
                Informer(client, resource, StoreHandler(cluster, resource), clock=clock.monotonic)
                for resource in STORED
            ),
            Informer(client, NODES, NodeHandler(cluster), clock=clock.monotonic),
            Informer(client, PODS, self._pods, field_selector=LIVE_PODS, clock=clock.monotonic),
        ]
        self._followed = {Selection(informer.resource) for informer in self.informers}
        self._watching: asyncio.TaskGroup | None = None
        self.config = config
        self.runtimes: dict[str, Runtime] = {}
        self._background: asyncio.TaskGroup | None = None
        self._work: list[asyncio.Task[None]] = []
        self._asker = asker or HttpAsker()
        self._extenders: Extenders | None = None
        self.use(config)

    def use(self, config: SchedulerConfiguration) -> None:
        """Take a configuration from the next cycle on. Raises ConfigError or PluginError, and changes nothing then."""
        extenders = Extenders(config.extenders, self._asker, self._client) if config.extenders else None
        runtimes = build_runtimes(
            config,
            self._catalog,
            self.cache,
            self._clock,
            self.recorder,
            self.waiting,
            self._client,
            self.metrics,
            self._random,
            self.groups,
        )
        self.config = config
        self.runtimes = runtimes
        grouping = (runtime.topology for runtime in runtimes.values() if runtime.handle.placed is not None)
        self._topology_metrics.topology = next(grouping, None)
        self._extenders = extenders
        self.queue.configure(
            QueueSettings(float(config.pod_initial_backoff_seconds), float(config.pod_max_backoff_seconds))
        )
        for name, runtime in runtimes.items():
            runtime.handle.spawner = self._spawn
            runtime.handle.nominations = self._nominated
            offer_what_if(runtime, self.cache, self._nominated, self.queue.group, self._clock.monotonic)
            runtime.handle.waits = lambda key: self.queue.group(key) is not None
            events = {**runtime.profile.events, GROUPS: group_events(self.groups)}
            if extenders is not None:
                runtime.handle.reviews = extenders.review_preemption_of
                runtime.bind_first = extenders.bind
                events = {**events, EXTENDER: None}
            self.queue.serve(name, runtime.sort_key, runtime.admit, events, runtime.group_key)
        self.queue.serve_only(runtimes)
        self._pods.profiles_changed()
        self.queue.start_over(self._clock.monotonic())
        self._wake.set()
        self._follow(watched_by(runtimes.values()))
        if self._background is not None:
            self._start_work(self._background)

    def _start_work(self, group: asyncio.TaskGroup) -> None:
        """Run what the plugins asked for in place of what those of an older configuration did."""
        for task in self._work:
            task.cancel()
        self._work = [group.create_task(work()) for runtime in self.runtimes.values() for work in runtime.handle.work]

    async def watch(self) -> None:
        """Keep the cache in step with the cluster; for leaders and standbys alike."""
        async with asyncio.TaskGroup() as group:
            self._watching = group
            for informer in self.informers:
                group.create_task(informer.run())
            group.create_task(self._housekeeping())

    async def synced(self) -> None:
        """Wait until everything was listed."""
        for informer in self.informers:
            await informer.synced.wait()

    def unsynced(self) -> list[str]:
        """The plurals that are not yet listed."""
        return [informer.resource.key for informer in self.informers if not informer.synced.is_set()]

    async def lead(self) -> None:
        """Decide and bind until cancelled.

        A standby that takes over lists everything anew first, so that nothing is decided on an old view; one that has
        just started has listed everything a moment ago.
        """
        if self._clock.monotonic() - self._started > FRESH:
            for informer in self.informers:
                informer.relist()
        await self.synced()
        for runtime in self.runtimes.values():
            if runtime.handle.placed is not None:  # pods may have been listed before what their groups are read from
                runtime.handle.placed.start_over(self.cache.pods.values())
        log.info(
            "scheduling for %s: %d nodes, %d pods waiting",
            ", ".join(self.runtimes),
            self.cache.nodes.count,
            sum(self.queue.counts().values()),
        )
        async with aclosing(self._asker), asyncio.TaskGroup() as group:
            self._background = group
            group.create_task(self.binder.run())
            group.create_task(self.reporter.run())
            group.create_task(self._schedule())
            self._start_work(group)

    async def run(
        self, while_leading: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None
    ) -> None:
        """Watch, and lead: at once, or when `while_leading` says so."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch())
            await self.synced()
            if while_leading is None:
                await self.lead()
            else:
                await while_leading(self.lead)

    def _follow(self, selections: Iterable[Selection[Any]]) -> None:
        """Keep what plugins want to watch in step too, from now on and for good."""
        for selection in selections:
            if selection in self._followed or Selection(selection.resource) in self._followed:
                continue
            informer = OptionalInformer(
                self._client,
                selection.resource,
                StoreHandler(self._cluster, selection.resource),
                namespace=selection.namespace or None,
                label_selector=selection.label_selector,
                field_selector=selection.field_selector,
                clock=self._clock.monotonic,
            )
            self._followed.add(selection)
            self.informers.insert(0, informer)  # before pods, so that most is known when they are listed
            if self._watching is not None:
                self._watching.create_task(informer.run())

    # The loop

    async def _schedule(self) -> None:
        while True:
            await self.binder.has_room()
            until = time.perf_counter() + SLICE
            while time.perf_counter() < until and (unit := self.queue.pop(self._clock.monotonic())) is not None:
                if self._extenders is not None and not unit.group and self._extenders.decide_on(unit.pod):
                    await self._ask(unit, self._extenders)
                else:
                    self._decide(unit)
            if self.binder.pending or self.queue.has_active:
                await asyncio.sleep(0)
            if not self.queue.has_active:
                await self._rest()

    async def _rest(self) -> None:
        """Wait until there may be something to decide."""
        due = self.queue.next_due(self._clock.monotonic())
        self._wake.clear()
        try:
            async with asyncio.timeout(due):
                await self._wake.wait()
        except TimeoutError:
            return

    def _nominated(self) -> Nominations:
        return without(self.cache.pods, self.queue.nominated())

    def _decide(self, unit: Unit) -> None:
        """Decide one unit at once."""
        runtime = self.runtimes[unit.scheduler_name]
        start = time.perf_counter()
        if unit.group:
            self._decide_group(unit, runtime)
            return
        outcome = decide(unit, runtime, self.cache, self._nominated())
        runtime.algorithm_seconds.observe(time.perf_counter() - start)
        self._decided(outcome, runtime)

    def _decide_group(self, unit: Unit, runtime: Runtime) -> None:
        """Decide a whole group at once."""
        start = time.perf_counter()
        strategy = strategy_of(runtime.handle.workload(unit.pod))
        outcome = decide_group(unit, runtime, self.cache, self._nominated(), self._clock.monotonic())
        seconds = time.perf_counter() - start
        runtime.group_seconds.observe(seconds)
        if isinstance(outcome, GroupDecision):
            self.metrics.groups.placed(strategy, seconds, outcome.score)
            self.binder.submit_group(outcome)
        else:
            self.metrics.groups.rejected(strategy, seconds, outcome.is_error)
            self.outcomes.group_rejected(outcome, runtime.name)

    async def _ask(self, unit: Unit, extenders: Extenders) -> None:
        """Decide one unit together with extenders; no other is decided meanwhile, as in kube-scheduler."""
        runtime = self.runtimes[unit.scheduler_name]
        start = time.perf_counter()
        outcome = await Attempt(unit, runtime, self.cache, self.queue, extenders).decide()
        runtime.algorithm_seconds.observe(time.perf_counter() - start)
        if outcome is not None:
            self._decided(outcome, runtime)
        elif self.queue.get(unit.uid) is unit:
            self.queue.done(unit)  # bound by somebody else meanwhile

    def _decided(self, outcome: Decision | Rejection, runtime: Runtime) -> None:
        if isinstance(outcome, Decision):
            self.binder.submit(outcome)
        else:
            self.outcomes.rejected(outcome, runtime.name)

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING)
            self.tidy()

    def tidy(self) -> None:
        """Drop assumptions that nobody confirmed, and bring the gauges up to date."""
        for pod in self.cache.expire(self._clock.monotonic()):
            log.warning("pod %s was bound, but no watch event confirmed it in time", pod.key)
        for place, number in self.queue.counts().items():
            self.metrics.pending.labels(place).set(number)
        self.metrics.groups.waiting.set(sum(bool(unit.group) for unit in self.queue))
        self.metrics.groups.partial.set(self._partial_groups())
        self._tell_held_groups()
        for informer in self.informers:
            self.metrics.informer_relists.labels(informer.resource.key).set(informer.relists)
        self.metrics.cache_size.labels("nodes").set(self.cache.nodes.count)
        self.metrics.cache_size.labels("pods").set(len(self.cache.pods))
        self.metrics.cache_size.labels("assumed_pods").set(self.cache.assumed)

    def _tell_held_groups(self) -> None:
        """Say what groups wait for that are not even tried, once they have waited for the same for a while."""
        until = self._clock.monotonic() - HOUSEKEEPING
        for unit in self.queue:
            if unit.group and unit.place == "gated" and unit.entered <= until:
                membership = self.runtimes[unit.scheduler_name].handle.group_of(unit.pod)
                self.outcomes.group_held(unit, membership.group if isinstance(membership, Membership) else None)

    def _partial_groups(self) -> int:
        """Groups of which some members have a node, but fewer than the group needs, and none is being bound."""
        return sum(1 for unit in self.queue if unit.group and unit.place != "in flight" and self._is_partial(unit))

    def _is_partial(self, unit: Unit) -> bool:
        handle = self.runtimes[unit.scheduler_name].handle
        membership = handle.group_of(unit.pod)
        placed = len(handle.members(unit.group))
        return isinstance(membership, Membership) and 0 < placed < membership.group.min_member

    def _still_waiting(self, uid: str) -> PodInfo | None:
        """The pod as it is now while it waits for a decision; None once it is being bound, bound or gone."""
        unit = self.queue.get(uid)
        return None if unit is None or unit.place == "in flight" else unit.member(uid)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a plugin's background work once, while this process leads; a failure is logged."""
        if self._background is not None:
            self._background.create_task(_logged(work))


async def _logged(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await work()
    except GanglineError as error:
        log.error("background work: %s", error)
