"""The loop: watch -> cache -> queue -> decide -> bind; the one place where tasks are started."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from gangline.api.plugin import Clock
from gangline.config import SchedulerConfiguration
from gangline.deadline import GANG_SECONDS, POD_SECONDS, STRETCH_SECONDS, Deadline
from gangline.deciding.group_scheduling import GroupDecision, GroupRejection
from gangline.deciding.group_search import GroupSearch, LongSearches
from gangline.deciding.scheduling import Decision, Rejection, decide
from gangline.extenders import EXTENDER, Asker, Attempt, Extenders, HttpAsker
from gangline.groups import Groups
from gangline.groups.strategy import strategy_of
from gangline.kube.interface import Client
from gangline.loop.binding import Binder
from gangline.loop.census import Census
from gangline.loop.decisions import Decisions
from gangline.loop.following import Informers
from gangline.loop.offering import Offered
from gangline.loop.outcomes import Outcomes
from gangline.loop.reporting import Reporter
from gangline.loop.watching import Cluster, PodHandler
from gangline.overview.topology_metrics import TopologyMetrics
from gangline.profile.assembly import build_runtimes, gang_warnings, group_events, ignored_resources, watched_by
from gangline.profile.background import Background
from gangline.profile.handle import Services
from gangline.profile.recording import EventRecorder
from gangline.profile.registry import Catalog
from gangline.profile.runtime import GROUPS, Runtime
from gangline.queueing.backing_off import QueueSettings
from gangline.queueing.nominating import Nominations, without
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Place, Unit
from gangline.queueing.waiting import WaitingPods
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.scopes import Scope
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

SLICE = 0.004
"""Seconds of deciding after which watch events and bindings are handled."""
FRESH = 5.0
"""Seconds after the start during which the first lists count as new."""
HOUSEKEEPING = 1.0
"""Seconds between two looks at expired assumptions and gauges."""
MENDING = 30
"""Seconds until a tracker that is out of step and could not be repaired is tried again."""


@dataclass(frozen=True, slots=True)
class Options:
    """Settings that KubeSchedulerConfiguration does not have."""

    concurrency: int = 64
    """Bindings that may run at the same time."""
    identity: str = "gangline"
    seed: int | None = None
    """The seed of the random choice among equal nodes; None for a different one at each start."""
    pod_deadline: float = POD_SECONDS
    """Seconds of CPU time that the decision on one pod may take."""
    gang_deadline: float = GANG_SECONDS
    """Seconds of CPU time that the decision on a whole group may take."""


@dataclass(frozen=True, slots=True, eq=False)
class InUse:
    """A configuration in use."""

    config: SchedulerConfiguration
    services: Services[Runtime]
    extenders: Extenders | None
    scope: Scope
    """Everything that the configuration has subscribed to; closed when another configuration replaces it."""

    @property
    def runtimes(self) -> dict[str, Runtime]:
        """The profiles of the configuration, by schedulerName."""
        return self.services.at_work


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
        self._cluster = cluster = Cluster(
            self.cache, self.queue, self.waiting, self.recorder, clock, self._wake.set, self._enqueued
        )
        self._pods = PodHandler(cluster)
        self.outcomes = outcomes = Outcomes(
            self.cache, self.queue, self.recorder, clock, self.metrics, cluster, self._wake.set
        )
        self._census = Census(self.queue, lambda: self.runtimes, outcomes, self.metrics, self._pods.others)
        self.binder = Binder(
            self.waiting, outcomes.finished, clock, self.metrics, options.concurrency, outcomes.group_finished
        )
        self.informers = Informers(client, cluster, self._pods, self.metrics)
        self._leading: asyncio.TaskGroup | None = None
        self._asker = asker or HttpAsker()
        self._long = LongSearches()
        self._warned: set[str] = set()
        self._take(self._built(config))

    @property
    def config(self) -> SchedulerConfiguration:
        """The configuration in use."""
        return self._in_use.config

    @property
    def runtimes(self) -> dict[str, Runtime]:
        """The profiles in use, by schedulerName."""
        return self._in_use.runtimes

    def use(self, config: SchedulerConfiguration) -> None:
        """Use a configuration from the next cycle on. Raises ConfigError or PluginError, and then changes nothing."""
        new = self._built(config)
        self._in_use.scope.close()
        self._take(new)

    def _built(self, config: SchedulerConfiguration) -> InUse:
        """A configuration that is ready; if it is refused, everything that it has subscribed to is closed."""
        extenders = Extenders(config.extenders, self._asker, self._client) if config.extenders else None
        scope, background = Scope(), Background(self.metrics.failures)
        runtimes: dict[str, Runtime] = {}
        services = Services(
            self.cache,
            self._clock,
            self.recorder,
            self.waiting,
            self._client,
            self.metrics.of_plugins.successor(),
            background,
            Offered(runtimes, self._cluster, self._nominated, extenders),
            self.groups,
            ignored_resources(config),
            runtimes,
        )
        scope.callback(background.end)
        with self.cache.scopes.opened(scope):
            build_runtimes(config, self._catalog, services, self.metrics, self._random)
        for runtime in runtimes.values():
            runtime.bind_first = extenders.bind if extenders is not None else None
        return InUse(config, services, extenders, scope)

    def _take(self, new: InUse) -> None:
        """Decide by this configuration from now on."""
        self._in_use = new
        config, runtimes = new.config, new.runtimes
        self.cache.scopes.current = new.scope
        self.metrics.of_plugins = new.services.metrics
        grouping = (runtime.topology for runtime in runtimes.values() if runtime.handle.groups_pods)
        self._topology_metrics.topology = next(grouping, None)
        self.queue.configure(
            QueueSettings(float(config.pod_initial_backoff_seconds), float(config.pod_max_backoff_seconds))
        )
        for name, runtime in runtimes.items():
            events = {**runtime.profile.events, GROUPS: group_events(self.groups)}
            if new.extenders is not None:
                events[EXTENDER] = None
            self.queue.serve(name, runtime.sort_key, runtime.admit, events, runtime.group_key)
        self.queue.serve_only(runtimes)
        for name, warning in gang_warnings(runtimes).items():
            if name not in self._warned:
                self._warned.add(name)
                log.warning("%s", warning)
        self.informers.follow(watched_by(runtimes.values()))
        if self._leading is not None:
            new.services.background.start(self._leading)
        for pod in [member for unit in self.queue for member in unit.everybody()]:
            self._enqueued(pod)
        self._pods.profiles_changed()
        self.queue.start_over(self._clock.monotonic())
        self._wake.set()

    def _enqueued(self, pod: PodInfo) -> None:
        if (runtime := self.runtimes.get(pod.scheduler_name)) is not None:
            runtime.enqueued(pod)

    async def watch(self) -> None:
        """Keep the cache up to date with the cluster; for leaders and standbys alike."""
        async with asyncio.TaskGroup() as group:
            self.informers.start(group)
            group.create_task(self._housekeeping())

    async def synced(self) -> None:
        """Wait until all objects are listed."""
        await self.informers.synced()

    def unsynced(self) -> list[str]:
        """The plurals of the kinds that are not listed yet; any thread may ask."""
        return [informer.resource.key for informer in self.informers if not informer.synced.is_set()]

    async def lead(self) -> None:
        """Decide and bind until cancelled.

        A standby that takes over first lists anew what the last leader may have written. A process that has just
        started has listed everything already.
        """
        began = self._clock.monotonic()
        if began - self._started > FRESH:
            self.informers.catch_up()
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
            self._leading = group
            try:
                group.create_task(self.binder.run())
                group.create_task(self.reporter.run())
                group.create_task(self._schedule())
                self._in_use.services.background.start(group)
                await asyncio.Event().wait()  # until cancelled
            finally:
                self._leading = None
                self._in_use.services.background.stop()

    def _read_groups_anew(self) -> None:
        """Pods may have been listed before the objects from which their groups are read."""
        for runtime in self.runtimes.values():
            runtime.handle.placed.start_over(self.cache.pods.values())

    async def run(
        self, while_leading: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None
    ) -> None:
        """Watch the cluster, and lead: at once, or when `while_leading` says so."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch())
            await self.synced()
            if while_leading is None:
                await self.lead()
            else:
                await while_leading(self.lead)

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
        """The time since `start` was spent on a namespace; returns the time now."""
        now = self._clock.monotonic()
        self.queue.spent(namespace, now - start, now)
        return now

    def _next(self, now: float) -> Unit | None:
        """The unit to decide next; None also if the queue fails, which is tried again at the next look."""
        try:
            return self.queue.pop(now)
        except Exception as error:
            self.metrics.fault("queueing", error)
            return None

    async def _decide_guarded(self, unit: Unit) -> None:
        """Decide one unit; a fault in it does not end the work for the others."""
        try:
            if self._in_use.extenders is not None and not unit.group and self._in_use.extenders.decide_on(unit.pod):
                await self._ask(unit, self._in_use.extenders)
            else:
                self._decide(unit)
        except Exception as error:
            self._broke(unit, error)

    async def _rest(self) -> None:
        """Wait until there may be a unit to decide."""
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
        """Decide one unit in one stretch."""
        runtime = self.runtimes[unit.scheduler_name]
        start = time.perf_counter()
        if unit.group:
            self._decide_group(unit, runtime)
            return
        outcome = decide(unit, runtime, self.cache, self._nominated(), Deadline(self._options.pod_deadline))
        self._decided(outcome, runtime, time.perf_counter() - start)

    def _decide_group(self, unit: Unit, runtime: Runtime) -> None:
        """Decide a whole group in one stretch, or begin to."""
        self._search(GroupSearch(unit, runtime, self.cache, Deadline(self._options.gang_deadline)))

    def _search(self, search: GroupSearch) -> None:
        """Search for a decision on a group; a long search is stopped and goes on after other units."""
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
        """Go on with the stopped search; a fault in it does not end the work for other units."""
        search = self._long.next
        if search is None:
            return
        try:
            self._go_on(search)
        except Exception as error:
            self._long.over(search)
            self._broke(search.unit, error)

    def _go_on(self, search: GroupSearch) -> None:
        """Go on with the search if the group still has members to decide."""
        unit = search.unit
        self.queue.leave(unit, {pod.uid for pod in unit.members if pod.uid in self.cache.pods})  # bound by others
        runtime = self.runtimes.get(unit.scheduler_name)
        if unit.place is not Place.IN_FLIGHT or runtime is None:
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
        """Decide one unit together with extenders; no other unit is decided meanwhile, as in kube-scheduler."""
        runtime = self.runtimes[unit.scheduler_name]
        start = time.perf_counter()
        limit = self._options.pod_deadline
        attempt = Attempt(
            unit,
            runtime,
            self.cache,
            self.queue,
            extenders,
            limit,
            is_in_use=lambda: self.runtimes.get(unit.scheduler_name) is runtime,
        )
        outcome = await attempt.decide()
        seconds = time.perf_counter() - start
        if outcome is not None:
            self._decided(outcome, runtime, seconds)
            return
        runtime.algorithm_seconds.observe(seconds)
        if self.queue.get(unit.uid) is unit:
            self.queue.done(unit)  # bound by somebody else meanwhile

    def _broke(self, unit: Unit, error: Exception) -> None:
        """A decision failed by a fault that is not a plugin's: the unit is tried again later; others go on."""
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
        """Drop assumptions that have expired, and update the gauges."""
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

    def _still_waiting(self, uid: str) -> PodInfo | None:
        """The newest record of a pod that waits for a decision; None once it is being bound, bound or gone."""
        unit = self.queue.get(uid)
        return None if unit is None or unit.place is Place.IN_FLIGHT else unit.member(uid)
