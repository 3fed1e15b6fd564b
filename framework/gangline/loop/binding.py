"""Carry out decisions: wait at permit, pre-bind, bind, post-bind; a bounded number of each profile's at a time.

The workers of a profile (`workers`) do this step by step, so a decision that takes long keeps no other one waiting.

The result of each decision goes to a listener; this module changes neither cache nor queue. A group binds in two
phases: first the pre-binds of all members, then, after a barrier, all binds. So a fault in a pre-bind, or a deleted
member or node, is noticed while no member is bound.

A scheduler that is told to stop carries out what has begun (`Binder.finish`): pods whose pre-binds or bind are under
way, and every member of a group behind the barrier. A group that is bound in part would wait for the next leader, and
until then its devices would be idle. Other decisions are dropped: the next leader decides on their pods anew.

If a binding takes long, the chosen node is written to the status of the pod: see `expecting`. The binding of a pod
that waits at permit takes long, and one whose pre-binds are not over soon. Members of a group are bound at the same
time, so the node of each is written first if one of them may take long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from gangline.api.plugin import Clock
from gangline.deciding.group_decisions import GroupDecision
from gangline.deciding.scheduling import Decision
from gangline.failpoints import failpoint
from gangline.loop.room import BindingRoom
from gangline.loop.workers import BindingJob, ProfileListener, Workers
from gangline.status import SKIP, SUCCESS, Code, Status, unschedulable
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

Listener = Callable[[Decision, Status], None]
"""Called once per decision with SUCCESS, or with the status that says what failed."""
GroupListener = Callable[[GroupDecision, Sequence[Status], bool], None]
"""Called once per group with the result of each member, and whether binding was reached."""
Expect = Callable[[Decision], Awaitable[Status]]
"""Writes to the status of a pod which node it is meant for."""
SOON = 0.5
"""Seconds after which the pre-binds of a pod count as long."""


class Binder:
    """Runs binding cycles; pods that wait at permit and bindings that take long do not count against `concurrency`."""

    def __init__(
        self,
        listener: Listener,
        clock: Clock,
        metrics: Metrics,
        concurrency: int = 64,
        group_listener: GroupListener | None = None,
        expect: Expect | None = None,
        profile_listener: ProfileListener | None = None,
        rest: Callable[[], None] | None = None,
    ) -> None:
        """`concurrency` is the number of places of each profile; for `rest` see `loop.room`."""
        self._listener = listener
        self._group_listener = group_listener
        self._profile_listener = profile_listener or ProfileListener()
        self._expect = expect
        self._clock = clock
        self._metrics = metrics
        self._succeeded = metrics.binding.series("success")
        self._failed = metrics.binding.series("failure")
        self._fault = metrics.fault
        self._concurrency = concurrency
        self._workers: dict[str, Workers] = {}
        """The workers of each profile, by its name."""
        self._group: asyncio.TaskGroup | None = None
        self._early: list[Coroutine[Any, Any, None]] = []
        self._behind_barrier = 0
        self._is_finishing = False
        self._finished = asyncio.Event()
        self._room = BindingRoom(rest)

    @property
    def pending(self) -> int:
        """The number of decisions that are being carried out, without those that wait at permit or take long."""
        return sum(workers.pending for workers in self._workers.values())

    @property
    def going_on(self) -> int:
        """As `pending`, without the decisions of profiles that are stuck."""
        return sum(workers.pending for workers in self._workers.values() if not workers.is_stuck)

    @property
    def slow(self) -> int:
        """The number of decisions that are being carried out and take long."""
        return sum(workers.slow for workers in self._workers.values())

    async def run(self) -> None:
        """Bind until cancelled; binding cycles that are running then are interrupted."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for work in self._early:
                group.create_task(work)
            self._early.clear()
            for workers in self._workers.values():
                workers.start(group)
            await asyncio.Event().wait()  # until cancelled: a profile may be new

    async def finish(self) -> None:
        """Carry out what has begun and drop the rest; returns when nothing is left. Nothing may be submitted any more.

        `run` must be running, and runs on until it is cancelled.
        """
        self._is_finishing = True
        for workers in self._workers.values():
            workers.is_finishing = True
        self._ended()
        await self._finished.wait()

    async def has_room(self) -> None:
        """Wait until so few decisions are pending that a new one will soon be carried out."""
        await self._room.wait()

    def submit(self, decision: Decision) -> None:
        """Carry out a decision."""
        if decision.holds:
            self._start(self._hold(decision))
        else:
            self._enqueue(decision, BindingJob(partial(self._carry_out, decision)))

    def submit_group(self, decision: GroupDecision) -> None:
        """Carry out the decision on a group."""
        self._start(self._carry_out_group(decision))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._group is not None:
            self._group.create_task(self._guarded(work))
        else:
            self._early.append(self._guarded(work))

    async def _guarded(self, work: Awaitable[None]) -> None:
        """Do the work for one unit; a fault in it does not end the work for the others."""
        try:
            await work
        except Exception as error:
            self._fault("binding", error)

    def workers_of(self, profile: str) -> Workers:
        """The workers of a profile."""
        workers = self._workers.get(profile)
        if workers is None:
            told = self._profile_listener, self._ended, self._look_at_room
            workers = Workers(profile, self._concurrency, self._metrics, *told)
            workers.is_finishing = self._is_finishing
            self._workers[profile] = workers
            if self._group is not None:
                workers.start(self._group)
        return workers

    def _look_at_room(self) -> None:
        self._room.is_there(all([workers.has_room for workers in self._workers.values()]))

    def _enqueue(self, decision: Decision, job: BindingJob) -> None:
        self.workers_of(decision.runtime.name).enqueue(job)

    async def _hold(self, decision: Decision) -> None:
        flight = self._pre_flight(decision)
        if flight.code is Code.ERROR:
            self._listener(decision, flight)
            return
        status, _ = await asyncio.gather(self._verdict(decision), self._told([decision]))
        if status.is_success:
            self._enqueue(decision, BindingJob(partial(self._bind, decision)))
        else:
            self._listener(decision, status)

    def _pre_flight(self, decision: Decision) -> Status:
        """Whether the pre-binds may take long: SUCCESS if so, SKIP if not; an error if they cannot be begun."""
        if self._expect is None:
            return SKIP
        return decision.runtime.pre_flight(decision.cycle, decision.pod, decision.node)

    async def _told(self, members: Sequence[Decision]) -> None:
        """Write for which nodes these pods are meant, with the usual limit on concurrency."""
        if self._expect is not None:
            await self._each(members, self._write_node, lambda: False)

    async def _write_node(self, decision: Decision) -> Status:
        """Write for which node a pod is meant. A fault is only reported, because the binding does not depend on it."""
        if self._expect is None:
            return SKIP
        try:
            return await self._expect(decision)
        except Exception as error:
            self._fault("binding", error)
            return SUCCESS

    async def _verdict(self, decision: Decision) -> Status:
        """Wait until every plugin allows the pod, one rejects it, or the first time-out passes."""
        if not decision.holds:
            return SUCCESS
        waiting = decision.runtime.at_permit(decision.pod)
        if waiting is None:
            return unschedulable("the pod is no longer held at permit")
        if waiting.verdict is not None:
            decision.runtime.leave_permit(decision.pod)
            return waiting.verdict
        verdict: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        waiting.on_verdict(verdict.set_result)
        plugin, seconds = min(decision.holds.items(), key=lambda hold: hold[1])
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(verdict)
        except TimeoutError:
            why = f'rejected due to timeout after waiting {seconds:g}s at plugin "{plugin}"'
            return unschedulable(why).by(plugin)
        finally:
            decision.runtime.leave_permit(decision.pod)

    def _ended(self) -> None:
        """A piece of work has ended."""
        self._room.work_ended()
        if self._is_finishing and not self.pending and not self.slow and not self._behind_barrier:
            self._finished.set()

    async def _carry_out(self, decision: Decision) -> None:
        """Bind a pod that nothing holds at permit."""
        flight = self._pre_flight(decision)
        if flight.code is Code.ERROR:
            self._observe(flight, self._clock.monotonic())
            self._listener(decision, flight)
            return
        await self._bind(decision, may_take_long=flight.is_success)

    async def _bind(self, decision: Decision, may_take_long: bool = False) -> None:
        start, status = self._clock.monotonic(), SUCCESS
        if decision.runtime.has_pre_binds(decision.cycle):
            status = await self._pre_bind(decision, may_take_long)
        if status.is_success:
            status = await decision.runtime.bind(decision.cycle, decision.pod, decision.node)
        self._observe(status, start)
        self._listener(decision, status)
        if status.is_success and decision.runtime.has_post_binds(decision.cycle):
            await self._after(decision)

    async def _carry_out_group(self, decision: GroupDecision) -> None:
        start = self._clock.monotonic()
        members = decision.members
        statuses = await self._permitted(members)
        failpoint("bind.before-locks")
        if all(status.is_success for status in statuses):
            statuses = await self._each(members, lambda m: m.runtime.pre_bind(m.cycle, m.pod, m.node), lambda: False)
        failpoint("bind.before-barrier")
        barrier = _Barrier(decision, self._opened)
        try:
            if all(status.is_success for status in statuses):
                statuses = await self._each(members, barrier.bind, lambda: barrier.is_open)
            failpoint("bind.after-group")
            for status in statuses:
                self._observe(status, start)
            if self._group_listener is not None:
                self._group_listener(decision, statuses, barrier.is_open)
            if barrier.is_open:
                for member, status in zip(members, statuses, strict=True):
                    if status.is_success:
                        self._enqueue(member, BindingJob(partial(self._after, member), lambda: True))
        finally:
            if barrier.is_open:
                self._behind_barrier -= 1
                self._ended()

    async def _permitted(self, members: Sequence[Decision]) -> Sequence[Status]:
        """The verdicts of permit on the members of a group; meanwhile their nodes are written if one takes long."""
        flights = [self._pre_flight(member) for member in members]
        if any(flight.code is Code.ERROR for flight in flights):
            return [flight if flight.code is Code.ERROR else SUCCESS for flight in flights]
        takes_long = any(flight.is_success for flight in flights) or any(map(self._waits, members))
        together = _Together(members)
        statuses, _ = await asyncio.gather(
            asyncio.gather(*(together.end(member, self._verdict) for member in members)),
            self._told(members if takes_long else ()),
        )
        return statuses

    def _waits(self, member: Decision) -> bool:
        """Whether a plugin still holds a member."""
        waiting = member.runtime.at_permit(member.pod)
        return bool(member.holds) and (waiting is None or waiting.verdict is None)

    def _opened(self) -> None:
        self._behind_barrier += 1

    async def _each(
        self,
        members: Sequence[Decision],
        step: Callable[[Decision], Awaitable[Status]],
        has_begun: Callable[[], bool],
    ) -> Sequence[Status]:
        """Do a step for every member, with the usual limit on concurrency; returns the answers in order."""
        answers: list[asyncio.Future[Status]] = []
        for member in members:
            answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
            answers.append(answer)
            self._enqueue(member, BindingJob(partial(_answer, member, step, answer), has_begun))
        return await asyncio.gather(*answers)

    def _observe(self, status: Status, start: float) -> None:
        series = self._succeeded if status.is_success else self._failed
        series.observe(self._clock.monotonic() - start)

    async def _pre_bind(self, decision: Decision, may_take_long: bool) -> Status:
        """Do the pre-binds of a pod, and write its node beside them if they are not over soon."""
        work = decision.runtime.pre_bind(decision.cycle, decision.pod, decision.node)
        if self._expect is None or not may_take_long:
            return await work
        working = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait([working], timeout=SOON)
            if not done:
                await self._write_node(decision)
            return await working
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait([working])  # plugins clean up before the binder ends

    async def _after(self, decision: Decision) -> None:
        worker = asyncio.current_task()
        in_post_bind = self.workers_of(decision.runtime.name).in_post_bind
        in_post_bind[worker] = None
        try:
            for failure in await decision.runtime.post_bind(decision.cycle, decision.pod, decision.node):
                log.warning("pod %s is bound, but %s", decision.pod.key, failure.message)
        finally:
            in_post_bind.pop(worker, None)


class _Together:
    """The members of a group at permit: if one is rejected, all are rejected."""

    def __init__(self, members: Sequence[Decision]) -> None:
        self._members = members
        self._is_over = False

    async def end(self, member: Decision, verdict: Callable[[Decision], Awaitable[Status]]) -> Status:
        """Record the verdict on a member."""
        status = await verdict(member)
        if not status.is_success and not self._is_over:
            self._is_over = True
            for other in self._members:
                waiting = other.runtime.at_permit(other.pod)
                if waiting is not None:
                    waiting.reject(status.plugin, f"pod {member.pod.key} of the same gang: {status.message}")
        return status


class _Barrier:
    """Before the binds of a group: if a member or a node is gone, or a lock is too old, no member is bound.

    The check is made when the first bind is due: the binds may have waited long behind the binds of other pods.
    """

    def __init__(self, decision: GroupDecision, on_open: Callable[[], None]) -> None:
        self._decision = decision
        self._on_open = on_open
        self._found: dict[str, Status] | None = None
        self.is_open = False
        """Whether binding was reached."""

    async def bind(self, member: Decision) -> Status:
        """Bind a member, unless the check of the whole group fails."""
        if self._found is None:
            self._found = self._look()
            self.is_open = all(status.is_success for status in self._found.values())
            if self.is_open:
                self._on_open()
                failpoint("bind.after-barrier")
        if not self.is_open:
            return self._found[member.pod.uid]
        return await member.runtime.bind(member.cycle, member.pod, member.node)

    def _look(self) -> dict[str, Status]:
        there = {pod.uid for pod in self._decision.unit.everybody()}
        return {
            each.pod.uid: each.runtime.still_bindable(each.cycle, each.pod, each.node)
            if each.pod.uid in there
            else unschedulable("the pod was deleted")
            for each in self._decision.members
        }


async def _answer(
    member: Decision, step: Callable[[Decision], Awaitable[Status]], answer: asyncio.Future[Status]
) -> None:
    try:
        status = await step(member)
    except Exception as error:
        if not answer.done():  # else the group would wait for ever
            answer.set_result(Status(Code.ERROR, (f"{type(error).__name__}: {error}",)))
        raise
    if not answer.done():  # the answer is done if the group was cancelled meanwhile
        answer.set_result(status)
