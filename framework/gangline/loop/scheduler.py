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

from gangline.api.hints import ClusterEvent
from gangline.api.plugin import Clock
from gangline.config import SchedulerConfiguration
from gangline.deadline import GANG_SECONDS, POD_SECONDS, STRETCH_SECONDS, Deadline
from gangline.deciding.group_scheduling import GroupDecision, GroupRejection, offer_what_if
from gangline.deciding.group_search import GroupSearch, LongSearches
from gangline.deciding.scheduling import Decision, Rejection, decide
from gangline.extenders import EXTENDER, Asker, Attempt, Extenders, HttpAsker
from gangline.groups import Groups
from gangline.groups.strategy import strategy_of
from gangline.kube.informer import Handler, Informer
from gangline.kube.interface import Client
from gangline.kube.optional import OptionalInformer
from gangline.kube.resources import CONFIG_MAPS, NODES, PODS, PVCS, PVS, STORED, Selection
from gangline.loop.binding import Binder
from gangline.loop.census import Census
from gangline.loop.decisions import Decisions
from gangline.loop.outcomes import Outcomes
from gangline.loop.quarantine import Quarantine, what_a_pod_takes
from gangline.loop.reporting import Reporter
from gangline.loop.watching import Cluster, NodeHandler, PodHandler, StoreHandler
from gangline.overview.topology_metrics import TopologyMetrics
from gangline.profile.assembly import build_runtimes, group_events, watched_by
from gangline.profile.background import keep_going, once
from gangline.profile.recording import EventRecorder
from gangline.profile.registry import Catalog
from gangline.profile.runtime import GROUPS, Runtime
from gangline.queueing.nominating import Nominations, without
from gangline.queueing.queue import QueueSettings, SchedulingQueue
from gangline.queueing.units import Unit
from gangline.queueing.waiting import WaitingPods
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.subscribing import Subscriptions
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

SLICE = 0.004
"""Seconds of deciding after which watch events and bindings get their turn."""
FRESH = 5.0
"""Seconds after the start for which the first lists count as new."""
HOUSEKEEPING = 1.0
"""Seconds between two looks at expired assumptions and gauges."""
MENDING = 30
"""Seconds until a tracker is looked at again that is out of step and could not be mended."""
WRITTEN = frozenset((PODS, PVCS, PVS, CONFIG_MAPS))
"""What leaders write and decide by, so that nothing is decided on a view without it. Locks of devices are left out: the
API server judges each anew.
"""
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class Options:
    """What is not in KubeSchedulerConfiguration."""

    concurrency: int = 64
    """Bindings under way at the same time."""
    identity: str = "gangline"
    seed: int | None = None
    """Of the random choice among equal nodes; None for a different one at each start."""
    pod_deadline: float = POD_SECONDS
    """Seconds of CPU time that the decision on one pod may take."""
    gang_deadline: float = GANG_SECONDS
    """The same for a whole group."""


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
        self.cache = Cache(self.metrics.failures)
        self.groups = Groups(self.cache)
        self._topology_metrics = TopologyMetrics(self.cache)
        self.metrics.families.append(self._topology_metrics)
        self.waiting = WaitingPods()
        self.recorder = EventRecorder(clock, options.identity)
        self.decisions = Decisions(clock)
        self.queue = SchedulingQueue()
        self._options = options
        self._clock = clock
        self._started = clock.monotonic()
        self._catalog = catalog
        self._client = client
        self._random = random.Random(options.seed)
        self._wake = asyncio.Event()
        self.reporter = Reporter(
            client, self.recorder, clock, self.metrics, lambda: self.binder.pending, self._still_waiting
        )
        self._cluster = cluster = Cluster(self.cache, self.queue, self.waiting, self.recorder, clock, self._wake.set)
        self._pods = PodHandler(cluster)
        self.outcomes = outcomes = Outcomes(
            self.cache, self.queue, self.recorder, clock, self.metrics, cluster, self._wake.set
        )
        self._census = Census(self.queue, lambda: self.runtimes, outcomes, self.metrics)
        self.binder = Binder(
            self.waiting, outcomes.finished, clock, self.metrics, options.concurrency, outcomes.group_finished
        )
        pods = Quarantine(PODS, self._pods, self.recorder, self.metrics, what_a_pod_takes)
        self.informers: list[Informer[Any]] = [
            *(self._informer(Selection(resource), StoreHandler(cluster, resource)) for resource in STORED),
            self._informer(Selection(NODES), NodeHandler(cluster)),
            self._informer(Selection(PODS, field_selector=LIVE_PODS), pods),
        ]
        self._followed = {Selection(informer.resource) for informer in self.informers}
        self._watching: asyncio.TaskGroup | None = None
        self.config = config
        self.runtimes: dict[str, Runtime] = {}
        self._background: asyncio.TaskGroup | None = None
        self._work: list[asyncio.Task[None]] = []
        self._asker = asker or HttpAsker()
        self._extenders: Extenders | None = None
        self._subscriptions = Subscriptions()
        self._long = LongSearches()
        self.use(config)

    def use(self, config: SchedulerConfiguration) -> None:
        """Take a configuration from the next cycle on. Raises ConfigError or PluginError, and changes nothing then."""
        extenders = Extenders(config.extenders, self._asker, self._client) if config.extenders else None
        subscriptions = Subscriptions()
        with subscriptions.collected():
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
        self._subscriptions.end()
        self._subscriptions = subscriptions
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
            runtime.handle.waits = self._waits
            runtime.handle.announcer = self._announced
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
        failures = self.metrics.failures
        self._work = [
            group.create_task(keep_going(work, plugin, failures))
            for runtime in self.runtimes.values()
            for plugin, work in runtime.handle.work
        ]

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
        """The plurals that are not yet listed; any thread may ask."""
        return [informer.resource.key for informer in tuple(self.informers) if not informer.synced.is_set()]

    async def lead(self) -> None:
        """Decide and bind until cancelled.

        A standby that takes over lists first what the last leader may have written; one that has just started has
        listed everything a moment ago.
        """
        began = self._clock.monotonic()
        if began - self._started > FRESH:
            for informer in self.informers:
                if informer.resource in WRITTEN:
                    informer.relist()
                else:
                    informer.resume()
        await self.synced()
        self._read_groups_anew()
        log.info(
            "scheduling for %s: %d nodes, %d pods waiting; all was listed within %.1f s",
            ", ".join(self.runtimes),
            self.cache.nodes.count,
            sum(self.queue.counts().values()),
            self._clock.monotonic() - began,
        )
        async with aclosing(self._asker), asyncio.TaskGroup() as group:
            self._background = group
            group.create_task(self.binder.run())
            group.create_task(self.reporter.run())
            group.create_task(self._schedule())
            self._start_work(group)

    def _read_groups_anew(self) -> None:
        """Pods may have been listed before what their groups are read from."""
        for runtime in self.runtimes.values():
            if runtime.handle.placed is not None:
                runtime.handle.placed.start_over(self.cache.pods.values())

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
            informer = self._informer(selection, StoreHandler(self._cluster, selection.resource), OptionalInformer)
            self._followed.add(selection)
            self.informers.insert(0, informer)  # before pods, so that most is known when they are listed
            if self._watching is not None:
                self._watching.create_task(informer.run())

    def _informer(
        self, selection: Selection[Any], handler: Handler[Any], kind: type[Informer[Any]] = Informer
    ) -> Informer[Any]:
        """An informer whose objects go through quarantine."""
        guarded = handler
        if not isinstance(guarded, Quarantine):
            guarded = Quarantine(selection.resource, handler, self.recorder, self.metrics)
        return kind(
            self._client,
            selection.resource,
            guarded,
            namespace=selection.namespace or None,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            clock=self._clock.monotonic,
            on_unreadable=guarded.unreadable,
            is_needed=selection.is_needed,
        )

    # The loop

    async def _schedule(self) -> None:
        while True:
            await self.binder.has_room()
            if self._long.due_in(self._clock.monotonic(), self.queue.has_active) == 0.0:
                self._go_on_guarded()
            until, now = time.perf_counter() + SLICE, self._clock.monotonic()
            while time.perf_counter() < until and (unit := self._next(now)) is not None:
                namespace, start = unit.pod.namespace, now
                await self._decide_guarded(unit)
                now = self._spent(namespace, start)
            if self.binder.pending or self.queue.has_active:
                await asyncio.sleep(0)
            if not self.queue.has_active:
                await self._rest()

    def _spent(self, namespace: str, start: float) -> float:
        """What was done since a moment was for a namespace; returns the moment that it is now."""
        now = self._clock.monotonic()
        self.queue.spent(namespace, now - start, now)
        return now

    def _next(self, now: float) -> Unit | None:
        """The unit to decide next; None too where it cannot be said, which is tried again at the next look."""
        try:
            return self.queue.pop(now)
        except Exception as error:
            self.metrics.fault("queueing", error)
            return None

    async def _decide_guarded(self, unit: Unit) -> None:
        """Nothing that goes wrong with one unit ends the work for the others."""
        try:
            if self._extenders is not None and not unit.group and self._extenders.decide_on(unit.pod):
                await self._ask(unit, self._extenders)
            else:
                self._decide(unit)
        except Exception as error:
            self._broke(unit, error)

    async def _rest(self) -> None:
        """Wait until there may be something to decide."""
        now = self._clock.monotonic()
        times = (self.queue.next_due(now), self._long.due_in(now, others=False))
        due = min((seconds for seconds in times if seconds is not None), default=None)
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
        outcome = decide(unit, runtime, self.cache, self._nominated(), Deadline(self._options.pod_deadline))
        self._decided(outcome, runtime, time.perf_counter() - start)

    def _decide_group(self, unit: Unit, runtime: Runtime) -> None:
        """Decide a whole group at once, or begin to."""
        self._search(GroupSearch(unit, runtime, self.cache, Deadline(self._options.gang_deadline)))

    def _search(self, search: GroupSearch) -> None:
        """Decide a group; what takes long is left, to go on with when others have been decided."""
        unit, runtime, before = search.unit, search.runtime, search.seconds
        outcome = search.go_on(self._nominated(), self._clock.monotonic(), STRETCH_SECONDS)
        if outcome is None:
            if self._long.leave(search, self._clock.monotonic(), search.seconds - before):
                return
            search.stop()
            why = "the decision takes long, and waits for others that do"
            outcome = GroupRejection(unit, why, frozenset(), is_error=True)
        self._long.over(search)
        strategy = strategy_of(runtime.handle.workload(unit.pod))
        runtime.group_seconds.observe(search.seconds)
        if isinstance(outcome, GroupDecision):
            self.metrics.groups.placed(strategy, search.seconds, outcome.score)
            self.decisions.note_group(outcome)
            self.binder.submit_group(outcome)
        else:
            self.metrics.groups.rejected(strategy, search.seconds, outcome.is_error)
            self.outcomes.group_rejected(outcome, runtime.name)

    def _go_on_guarded(self) -> None:
        """The search that was left goes on; nothing that goes wrong with it ends the work for the others."""
        search = self._long.next
        if search is None:
            return
        try:
            self._go_on(search)
        except Exception as error:
            self._long.over(search)
            self._broke(search.unit, error)

    def _go_on(self, search: GroupSearch) -> None:
        """Go on as far as there still is something to search for."""
        unit = search.unit
        self.queue.leave(unit, {pod.uid for pod in unit.members if pod.uid in self.cache.pods})  # bound by others
        runtime = self.runtimes.get(unit.scheduler_name)
        if unit.place != "in flight" or runtime is None:
            search.stop()
            self._long.over(search)
            return
        namespace, start = unit.pod.namespace, self._clock.monotonic()
        try:
            if runtime is search.runtime:
                self._search(search)
            else:  # by another configuration
                search.stop()
                self._long.over(search)
                self._decide_group(unit, runtime)
        finally:
            self._spent(namespace, start)

    async def _ask(self, unit: Unit, extenders: Extenders) -> None:
        """Decide one unit together with extenders; no other is decided meanwhile, as in kube-scheduler."""
        runtime = self.runtimes[unit.scheduler_name]
        start = time.perf_counter()
        limit = self._options.pod_deadline
        outcome = await Attempt(unit, runtime, self.cache, self.queue, extenders, limit).decide()
        seconds = time.perf_counter() - start
        if outcome is not None:
            self._decided(outcome, runtime, seconds)
            return
        runtime.algorithm_seconds.observe(seconds)
        if self.queue.get(unit.uid) is unit:
            self.queue.done(unit)  # bound by somebody else meanwhile

    def _broke(self, unit: Unit, error: Exception) -> None:
        """A decision failed by a fault that is no plugin's: the unit is tried again later, and others meanwhile."""
        self.metrics.fault("deciding", error)
        why = f"the scheduler failed: {type(error).__name__}: {error}"[:500]
        try:
            if unit.group:
                rejected = GroupRejection(unit, why, frozenset(), is_error=True)
                self.outcomes.group_rejected(rejected, unit.scheduler_name)
            else:
                rejection = Rejection(unit, unit.pod, why, frozenset(), is_error=True)
                self.outcomes.rejected(rejection, unit.scheduler_name)
        except Exception as another:
            self.metrics.fault("rejecting", another)
            self.queue.done(unit)

    def _decided(self, outcome: Decision | Rejection, runtime: Runtime, seconds: float) -> None:
        runtime.algorithm_seconds.observe(seconds)
        pod = outcome.pod
        strategy = strategy_of(runtime.handle.workload(pod) if pod.owners else pod.annotations)
        if isinstance(outcome, Decision):
            self.metrics.groups.pod_placed(strategy, seconds)
            self.decisions.note(outcome)
            self.binder.submit(outcome)
        else:
            self.metrics.groups.rejected(strategy, seconds, outcome.is_error)
            self.outcomes.rejected(outcome, runtime.name)

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING)
            try:
                self.tidy()
            except Exception as error:
                self.metrics.fault("housekeeping", error)

    def tidy(self) -> None:
        """Drop assumptions that nobody confirmed, and bring the gauges up to date."""
        for pod in self.cache.expire(self._clock.monotonic()):
            log.warning("pod %s was bound, but no watch event confirmed it in time", pod.key)
        if self.cache.trackers.broken and int(self._clock.monotonic()) % MENDING == 0:
            self.cache.mend_trackers(again=True)
        self._census.look(self._clock.monotonic())
        self._topology_metrics.take()
        for informer in self.informers:
            self.metrics.informer_relists.labels(informer.resource.key).set(informer.relists)
        self.metrics.cache_size.labels("nodes").set(self.cache.nodes.count)
        self.metrics.cache_size.labels("pods").set(len(self.cache.pods))
        self.metrics.cache_size.labels("assumed_pods").set(self.cache.assumed)

    def _waits(self, key: str) -> bool:
        """Whether a group waits whose members are enough for it to be tried."""
        unit = self.queue.group(key)
        return unit is not None and self.runtimes[unit.scheduler_name].admit(unit.everybody()).is_success

    def _announced(self, event: ClusterEvent) -> None:
        self._cluster.happened(event.resource, event.action, None, None)

    def _still_waiting(self, uid: str) -> PodInfo | None:
        """The pod as it is now while it waits for a decision; None once it is being bound, bound or gone."""
        unit = self.queue.get(uid)
        return None if unit is None or unit.place == "in flight" else unit.member(uid)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a plugin's background work once, while this process leads; a failure is logged."""
        if self._background is not None:
            self._background.create_task(once(work, "", self.metrics.failures))
