"""The loop: watch -> cache -> queue -> decide -> bind; the one place where tasks are started.

`Scheduler` puts the parts together and starts them; each part is a module of its own. Informers write what they watch
to the cache and the queue (`watching`). `scheduling_cycles` takes one unit after the other from the queue and decides
it, without I/O. The binder carries decisions out beside that (`binding`), and `outcomes` tells queue and cache how they
ended. A process without the leadership watches too, so it can decide as soon as it leads.

`use` replaces the configuration while all this runs: a new one is built as a whole (`InUse`), and taken only if nothing
in it was refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from itertools import chain
from weakref import WeakSet

import msgspec

from gangline.api.plugin import Clock
from gangline.api.term import Term
from gangline.config import SchedulerConfiguration
from gangline.deadline import GANG_SECONDS, POD_SECONDS
from gangline.extenders import EXTENDER, Asker, Extenders, HttpAsker
from gangline.groups import Groups
from gangline.kube import handing_over
from gangline.kube.handing_over import Writes
from gangline.kube.interface import Client
from gangline.loop.binding import Binder
from gangline.loop.census import Census
from gangline.loop.confirming import Confirmations
from gangline.loop.decisions import Decisions
from gangline.loop.expecting import ExpectedPlacements
from gangline.loop.finishing import StopWriting, finish
from gangline.loop.following import Informers
from gangline.loop.housekeeping import Housekeeping
from gangline.loop.offering import Offered
from gangline.loop.outcomes import Outcomes
from gangline.loop.rehearsing import Rehearsals
from gangline.loop.reporting import Reporter
from gangline.loop.scheduling_cycles import CycleLimits, SchedulingCycles
from gangline.loop.telling import Telling
from gangline.loop.watching import Cluster, PodHandler
from gangline.profile.assembly import build_runtimes, gang_notes, group_events, ignored_resources, watched_by
from gangline.profile.background import Background
from gangline.profile.handle import Services
from gangline.profile.recording import EventRecorder
from gangline.profile.registry import Catalog
from gangline.profile.runtime import GROUPS, Runtime, first_grouping
from gangline.queueing.backing_off import QueueSettings
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Place
from gangline.queueing.waiting import WaitingPods
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.scopes import Scope
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

FRESH = 5.0
"""Seconds after the start during which the first lists count as new."""


class Options(msgspec.Struct, frozen=True):
    """Settings that KubeSchedulerConfiguration does not have."""

    concurrency: int = 64
    """Bindings of each profile that may run at the same time."""
    identity: str = "gangline"
    """The name of this process, for events and locks; no other process has it."""
    term: Callable[[], Term] = Term
    """See `Handle.term`."""
    handed_over: Callable[[], str] = str
    """Returns the note of the previous leader for this process: see `kube.handing_over`. Called when this process
    begins to lead.
    """
    writes: Writes = msgspec.field(default_factory=Writes)
    """The resourceVersions that the client has written."""
    stop_writing: StopWriting | None = None
    """How the client stops writing at the end; None if it cannot."""
    seed: int | None = None
    """The seed of the random choice among equal nodes; None for a different one at each start."""
    pod_deadline: float = POD_SECONDS
    """Seconds of CPU time that the decision on one pod may take."""
    gang_deadline: float = GANG_SECONDS
    """Seconds of CPU time that the decision on a whole group may take."""
    tells_expected_nodes: bool = True
    """The feature gate NominatedNodeNameForExpectation: whether the node of a pod whose binding takes long is written
    to its status before.
    """
    stopwatch: Callable[[], float] = time.perf_counter
    """Measures how long the scheduler decides without a pause. With a stopwatch that counts how often it is read, a run
    can be repeated exactly.
    """
    rest: Callable[[], None] | None = None
    """A rest of the process while many bindings go on: see `loop.room`."""
    recorder: Callable[[Clock, str], EventRecorder] = EventRecorder
    """Makes the recorder of events and conditions."""


class InUse(msgspec.Struct, frozen=True, eq=False):
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

    _leading: asyncio.TaskGroup | None = None
    _deciding: asyncio.Task[None] | None = None
    _is_ending = False
    """Whether `finish` was called: no decision may begin any more."""

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
        self.metrics = metrics = metrics or Metrics()
        self.cache = Cache(metrics.failures)
        self.groups = Groups(self.cache)
        self.waiting = WaitingPods()
        self.recorder = options.recorder(clock, options.identity)
        self.decisions = Decisions(clock)
        self.queue = SchedulingQueue()
        self._clock, self._started = clock, clock.monotonic()
        self._catalog, self._client = catalog, client
        self._random = random.Random(options.seed)
        self._asker = asker or HttpAsker()
        self._spawned: set[asyncio.Task[bool]] = set()
        self._options = options
        self._cluster = Cluster(self.cache, self.queue, self.waiting, self.recorder, clock, self._enqueued)
        self._pods = PodHandler(self._cluster)
        self.informers = Informers(client, self._cluster, self._pods, metrics, random.Random(options.seed))
        self.outcomes = outcomes = Outcomes(self._cluster, metrics)
        self.binder = binder = self._new_binder()
        limits = CycleLimits(options.pod_deadline, options.gang_deadline, options.stopwatch)
        self._cycles = SchedulingCycles(self._cluster, metrics, self.decisions, binder, outcomes, limits)
        self.reporter = Reporter(client, self.recorder, clock, metrics, lambda: binder.going_on, self._still_waiting)
        self._confirmations = Confirmations(self._cluster, self._pods, client, metrics, self.informers.watch_pods_anew)
        self._housekeeping = Housekeeping(self.cache, clock, self.informers, self._new_census(), metrics)
        self._rehearsals = Rehearsals(lambda: self.runtimes, self._stands_by, metrics)
        self._telling = Telling(self._enqueued, metrics)
        self._noted: set[str] = set()
        self._former: WeakSet[Runtime] = WeakSet()
        """Profiles of earlier configurations, while decisions of theirs are carried out."""
        self._take(self._built(config))

    def _new_binder(self) -> Binder:
        """Carries decisions out, and tells the outcomes how they ended."""
        return Binder(
            self.outcomes.finished,
            self._clock,
            self.metrics,
            self._options.concurrency,
            self.outcomes.group_finished,
            ExpectedPlacements(self._client).write if self._options.tells_expected_nodes else None,
            self.outcomes,
            self._options.rest,
        )

    def _new_census(self) -> Census:
        """Counts what waits, for the metrics."""
        return Census(
            self.queue,
            lambda: self.runtimes,
            self.outcomes,
            self.metrics,
            self._pods.others,
            lambda: self._leading is not None,
        )

    @property
    def config(self) -> SchedulerConfiguration:
        """The configuration in use."""
        return self._in_use.config

    @property
    def runtimes(self) -> dict[str, Runtime]:
        """The profiles in use, by schedulerName."""
        return self._in_use.runtimes

    @property
    def pods(self) -> PodHandler:
        """The handler that is told of pods; for programs without informers, see `decide_only`."""
        return self._pods

    def use(self, config: SchedulerConfiguration) -> None:
        """Use a configuration from the next cycle on. Raises ConfigError or PluginError, and then changes nothing."""
        new = self._built(config)
        self._in_use.scope.close()
        self._former.update(self.runtimes.values())
        self._take(new)
        for former in self._former:
            kept = self.runtimes.get(former.name)
            former.keep_only(kept.profile.plugins.keys() if kept is not None else frozenset())

    def _built(self, config: SchedulerConfiguration) -> InUse:
        """A configuration that is ready; if it is refused, everything that it has subscribed to is closed."""
        extenders = Extenders(config.extenders, self._asker, self._client) if config.extenders else None
        scope, background = Scope(), Background(self.metrics.failures, self._spawned)
        runtimes: dict[str, Runtime] = {}
        services = Services(
            self.cache,
            self._clock,
            self.recorder,
            self.waiting,
            self._client,
            self.metrics.of_plugins.successor(),
            background,
            Offered(runtimes, self._cluster, self._cycles.nominated, extenders),
            self.groups,
            ignored_resources(config),
            runtimes,
            self._options.term,
            random.Random(self._options.seed),
        )
        scope.callback(background.end)
        with self.cache.scopes.opened(scope):
            bind_first = extenders.bind if extenders is not None else None
            build_runtimes(config, self._catalog, services, self.metrics, self._random, bind_first=bind_first)
        return InUse(config, services, extenders, scope)

    def _take(self, new: InUse) -> None:
        """Decide by this configuration from now on."""
        self._in_use = new
        config, runtimes = new.config, new.runtimes
        self._cycles.use(runtimes, new.extenders)
        self.cache.scopes.current = new.scope
        self.metrics.of_plugins = new.services.metrics
        grouping = first_grouping(runtimes.values())
        self._housekeeping.topology_metrics.topology = grouping.topology if grouping is not None else None
        self.queue.configure(
            QueueSettings(float(config.pod_initial_backoff_seconds), float(config.pod_max_backoff_seconds))
        )
        for name, runtime in runtimes.items():
            events = {**runtime.profile.events, GROUPS: group_events(self.groups)}
            if new.extenders is not None:
                events[EXTENDER] = None
            counts_room = partial(self._cycles.counts_room, runtime)
            self.queue.serve(name, runtime.sort_key, runtime.admit, events, runtime.group_key, counts_room)
        self.queue.serve_only(runtimes)
        for name, note in gang_notes(runtimes).items():
            if name not in self._noted:
                self._noted.add(name)
                log.info("%s", note)
        self.informers.follow(watched_by(runtimes.values()))
        if self._leading is not None:
            new.services.background.start(self._leading)
        self._telling.begin(self.queue)
        self._pods.profiles_changed()
        self.try_all_again()

    def _stands_by(self) -> bool:
        return self._leading is None and self._cluster.is_listed

    def _enqueued(self, pod: PodInfo) -> None:
        if (runtime := self.runtimes.get(pod.scheduler_name)) is not None:
            self._rehearsals.note(pod)
            runtime.enqueued(pod)

    async def watch(self) -> None:
        """Keep the cache up to date with the cluster; for leaders and standbys alike."""
        async with asyncio.TaskGroup() as group:
            self.informers.start(group)
            group.create_task(self._housekeeping.run())
            group.create_task(self._confirmations.run())
            group.create_task(self._rehearsals.run())
            group.create_task(self._telling.run())

    async def synced(self) -> None:
        """Wait until all objects are listed."""
        await self.informers.synced()

    def unsynced(self) -> list[str]:
        """The plurals of the kinds that are not listed yet; any thread may ask."""
        return [informer.resource.key for informer in self.informers if not informer.synced.is_set()]

    async def lead(self, may_take_over: bool = True) -> None:
        """Decide and bind until cancelled.

        A standby that takes over first waits until it knows everything that the last leader has written. A process that
        has just started, or that cannot take over from anybody, has listed everything already.
        """
        began = self._clock.monotonic()
        if may_take_over and began - self._started > FRESH:
            await self.informers.catch_up(handing_over.read(self._options.handed_over()))
        await self.synced()
        await self._read_groups_anew()
        if self._is_ending:
            await asyncio.Event().wait()  # until cancelled
        log.info(
            "scheduling for %s: %d nodes, %d pods waiting; all was known within %.1f s",
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
                self._deciding = group.create_task(self._cycles.run())
                self._in_use.services.background.start(group)
                await asyncio.Event().wait()  # until cancelled
            finally:
                self._leading = self._deciding = None
                self._in_use.services.background.stop()

    def try_all_again(self) -> None:
        """Try all units that wait, whatever they wait for."""
        self.queue.start_over(self._clock.monotonic())
        self._cluster.wake()

    async def decide_only(self) -> None:
        """Decide and bind until cancelled, for a program that tells of the pods itself and reads no events.

        Nothing is watched, and the regular background work of plugins does not run. Work that plugins begin because of
        a decision does run, for example evictions.
        """
        async with asyncio.TaskGroup() as group:
            self._in_use.services.background.start(group, only_spawned=True)
            group.create_task(self.binder.run())
            group.create_task(self._cycles.run())

    async def finish(self) -> bool:
        """Decide no more, and carry out what has begun: bindings, and work that plugins have spawned, for example
        evictions. To be called before `lead` is cancelled.

        Returns whether no write is under way any more, as `finishing.finish` does; True at once if this process does
        not lead.
        """
        self._is_ending = True
        if self._deciding is None:
            return True
        self._deciding.cancel()
        spawned, options = self._in_use.services.background, self._options
        return await finish(self.binder, spawned, self.informers, options.writes, options.stop_writing)

    def hands_over(self) -> str:
        """What this process leaves to the next leader at its end; see `kube.handing_over`. Any thread may ask."""
        return "" if self.cache.unconfirmed else handing_over.said(self.informers.told(self._options.writes))

    async def _read_groups_anew(self) -> None:
        """Pods may have been listed before the objects from which their groups are read."""
        placed = {id(members): members for members in (each.handle.placed for each in self.runtimes.values())}
        steps = (each.start_over(self.cache.pods) for each in placed.values())
        for _ in chain(self.groups.start_over(), *steps):
            await asyncio.sleep(0)

    async def run(
        self, while_leading: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None
    ) -> None:
        """Watch the cluster, and lead: at once, or when `while_leading` says so."""
        self._cluster.is_listed = False
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch())
            await self.synced()
            self._cluster.all_is_listed()
            if while_leading is None:
                await self.lead(may_take_over=False)
            else:
                await while_leading(self.lead)

    def _still_waiting(self, uid: str) -> PodInfo | None:
        """The newest record of a pod that waits for a decision; None once it is being bound, bound or gone."""
        unit = self.queue.get(uid)
        return None if unit is None or unit.place is Place.IN_FLIGHT else unit.member(uid)
