"""Scheduling cycles: take units off the queue and decide them, one after another; hand on what was decided.

Deciding shares one thread with watch events and bindings: after a short time the others get their turn. A long search
for the places of a group is stopped, and goes on after other units.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gangline.deadline import STRETCH_SECONDS, Deadline
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.group_room import RoomCount
from gangline.deciding.group_search import GroupSearch, LongSearches
from gangline.deciding.scheduling import Decision, Rejection, decide
from gangline.extenders import Attempt, Extenders
from gangline.groups.strategy import strategy_of
from gangline.loop.binding import Binder
from gangline.loop.decisions import Decisions
from gangline.loop.outcomes import Outcomes
from gangline.loop.watching import Cluster
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Place, Unit
from gangline.telemetry.metrics import Metrics

SLICE = 0.004
"""Seconds of deciding after which watch events and bindings are handled."""


class CycleLimits(NamedTuple):
    """Seconds of CPU time that a decision may take."""

    pod: float
    """The decision on one pod."""
    gang: float
    """The decision on a whole group."""
    stopwatch: Callable[[], float] = time.perf_counter
    """Measures for how long the cycles have decided without a pause."""


class SchedulingCycles:
    """Decides the units of a queue by the profiles in use."""

    def __init__(
        self,
        cluster: Cluster,
        metrics: Metrics,
        decisions: Decisions,
        binder: Binder,
        outcomes: Outcomes,
        limits: CycleLimits,
    ) -> None:
        self._cache = cluster.cache
        self._queue = cluster.queue
        self._clock = cluster.clock
        self._woken = cluster.woken
        self._metrics = metrics
        self._decisions = decisions
        self._binder = binder
        self._outcomes = outcomes
        self._limits = limits
        self._long = LongSearches()
        self._cpu_ahead = 0.0
        """CPU time of this thread less wall-clock time, when the present slice began."""
        self._runtimes: Mapping[str, Runtime] = {}
        self._extenders: Extenders | None = None

    def use(self, runtimes: Mapping[str, Runtime], extenders: Extenders | None) -> None:
        """Decide by these profiles from now on."""
        self._runtimes = runtimes
        self._extenders = extenders

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            await self._binder.has_room()
            if self._long.due_in(self._clock.monotonic(), self._queue.has_active) == 0.0:
                self._go_on_guarded()
            until, now = self._limits.stopwatch() + SLICE, self._clock.monotonic()
            self._cpu_ahead = time.thread_time() - time.perf_counter()
            while self._limits.stopwatch() < until and (unit := self._next(now)) is not None:
                namespace, start = unit.pod.namespace, now
                await self._decide_guarded(unit)
                now = self._spent(namespace, start)
            if self._binder.pending or self._queue.has_active:
                await asyncio.sleep(0)
            if not self._queue.has_active:
                await self._rest()

    def _spent(self, namespace: str, start: float) -> float:
        """The time since `start` was spent on a namespace; returns the time now."""
        now = self._clock.monotonic()
        self._queue.spent(namespace, now - start, now)
        return now

    def _next(self, now: float) -> Unit | None:
        """The unit to decide next; None also if the queue fails, which is tried again at the next look."""
        try:
            return self._queue.pop(now)
        except Exception as error:
            self._metrics.fault("queueing", error)
            return None

    async def _decide_guarded(self, unit: Unit) -> None:
        """Decide one unit; a fault in it does not end the work for the others."""
        try:
            if self._extenders is not None and not unit.group and self._extenders.decide_on(unit.pod):
                await self._ask(unit, self._extenders)
            else:
                self._decide(unit)
        except Exception as error:
            self._broke(unit, error)

    async def _rest(self) -> None:
        """Wait until there may be a unit to decide."""
        now = self._clock.monotonic()
        times = (self._queue.next_due(now), self._long.due_in(now, others=False))
        due = min((seconds for seconds in times if seconds is not None), default=None)
        self._woken.clear()
        late = None if due is None else self._wake_in(due)  # in a third of the time of `asyncio.timeout`
        try:
            await self._woken.wait()
        finally:
            if late is not None:
                late.cancel()

    def _wake_in(self, seconds: float) -> asyncio.Handle:
        loop, wake = asyncio.get_running_loop(), self._woken.set
        return loop.call_later(seconds, wake) if seconds > 0 else loop.call_soon(wake)

    def counts_room(self, runtime: Runtime, now: float) -> Callable[[Unit], bool]:
        """Whether an attempt at a rejected group would only find that the whole cluster has too little room again; the
        answers hold as long as nothing changes.
        """
        return RoomCount(runtime, self._cache, self.nominated(), now, Deadline(self._limits.pod)).still_lacks

    def nominated(self) -> Nominations:
        """The nominations that keep room from others."""
        return self._queue.nominations.by_node

    def _decide(self, unit: Unit) -> None:
        """Decide one unit in one stretch."""
        runtime = self._runtimes[unit.scheduler_name]
        start = time.perf_counter()
        if unit.group:
            self._decide_group(unit, runtime)
            return
        # CPU time is read once for a slice: the system call for each pod took 3 % of the CPU time of a pod. Since then
        # it has run as fast as wall-clock time at most, so no deadline passes early, or late by more than a slice.
        deadline = Deadline(self._limits.pod, now=start + self._cpu_ahead)
        outcome = decide(unit, runtime, self._cache, self.nominated(), deadline)
        self._decided(outcome, runtime, time.perf_counter() - start)

    def _decide_group(self, unit: Unit, runtime: Runtime) -> None:
        """Decide a whole group in one stretch, or begin to."""
        self._search(GroupSearch(unit, runtime, self._cache, Deadline(self._limits.gang)))

    def _search(self, search: GroupSearch) -> None:
        """Search for a decision on a group; a long search is stopped and goes on after other units."""
        unit, runtime, before = search.unit, search.runtime, search.seconds
        outcome = search.go_on(self.nominated(), self._clock.monotonic(), STRETCH_SECONDS)
        if outcome is None:
            if self._long.leave(search, self._clock.monotonic(), search.seconds - before):
                return
            search.stop()
            why = "the decision takes long, and waits until other long decisions have ended"
            outcome = GroupRejection(unit, why, frozenset(), is_error=True)
        self._long.over(search)
        strategy = strategy_of(runtime.handle.workload(unit.pod))
        runtime.group_seconds.observe(search.seconds)
        if isinstance(outcome, GroupDecision):
            self._metrics.groups.placed(strategy, search.seconds, outcome.score)
            self._decisions.note_group(outcome)
            self._binder.submit_group(outcome)
        else:
            self._metrics.groups.rejected(strategy, search.seconds, outcome.is_error)
            self._outcomes.group_rejected(outcome, runtime.name)

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
        self._queue.leave(unit, {pod.uid for pod in unit.members if pod.uid in self._cache.pods})  # bound by others
        runtime = self._runtimes.get(unit.scheduler_name)
        if unit.place is not Place.IN_FLIGHT or runtime is None:
            search.stop()
            self._long.over(search)
            return
        namespace, start = unit.pod.namespace, self._clock.monotonic()
        try:
            if runtime is search.runtime:
                self._search(search)
            else:  # another configuration is in use: begin anew
                search.stop()
                self._long.over(search)
                self._decide_group(unit, runtime)
        finally:
            self._spent(namespace, start)

    async def _ask(self, unit: Unit, extenders: Extenders) -> None:
        """Decide one unit together with extenders; no other unit is decided meanwhile, as in kube-scheduler."""
        runtime = self._runtimes[unit.scheduler_name]
        start = time.perf_counter()
        limit = self._limits.pod
        attempt = Attempt(
            unit,
            runtime,
            self._cache,
            self._queue,
            extenders,
            limit,
            is_in_use=lambda: self._runtimes.get(unit.scheduler_name) is runtime,
        )
        outcome = await attempt.decide()
        seconds = time.perf_counter() - start
        if outcome is not None:
            self._decided(outcome, runtime, seconds)
            return
        runtime.algorithm_seconds.observe(seconds)
        if self._queue.get(unit.uid) is unit:
            self._queue.done(unit)  # bound by somebody else meanwhile

    def _broke(self, unit: Unit, error: Exception) -> None:
        """A decision failed by a fault that is not a plugin's: the unit is tried again later; others go on."""
        self._metrics.fault("deciding", error)
        why = f"the scheduler failed: {type(error).__name__}: {error}"[:500]
        try:
            if unit.group:
                rejected = GroupRejection(unit, why, frozenset(), is_error=True)
                self._outcomes.group_rejected(rejected, unit.scheduler_name)
            else:
                rejection = Rejection(unit, unit.pod, why, frozenset(), is_error=True)
                self._outcomes.rejected(rejection, unit.scheduler_name)
        except Exception as another:
            self._metrics.fault("rejecting", another)
            self._queue.done(unit)

    def _decided(self, outcome: Decision | Rejection, runtime: Runtime, seconds: float) -> None:
        runtime.algorithm_seconds.observe(seconds)
        pod = outcome.pod
        strategy = strategy_of(runtime.handle.workload(pod) if pod.owners else pod.annotations)
        if isinstance(outcome, Decision):
            self._metrics.groups.pod_placed(strategy, seconds)
            self._decisions.note(outcome)
            self._binder.submit(outcome)
        else:
            self._metrics.groups.rejected(strategy, seconds, outcome.is_error)
            self._outcomes.rejected(outcome, runtime.name)
