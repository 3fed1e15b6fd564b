"""Decisions are carried out: how many at a time, how long held, and what becomes of a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from gangline import SKIP, Cycle, Status, hookimpl, unschedulable
from gangline.api.pod_group import PodGroup
from gangline.deciding.group_decisions import GroupDecision
from gangline.deciding.scheduling import Decision
from gangline.errors import Conflict
from gangline.loop.binding import Binder
from gangline.profile.binding_points import TOO_LATE
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.queueing.waiting import PodAtPermit
from gangline.state.pods import PodInfo
from gangline.status import SUCCESS, Code
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeClock, FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline_plugins.default_binder import DefaultBinder

from ..eventually import until

CACHE = cluster([make_node("a")])


class Bench:
    """A binder at work, and what it has told."""

    def __init__(self, *plugins: type[Any], concurrency: int = 64) -> None:
        self.handle = FakeHandle(CACHE)
        self.runtime: Runtime = make_runtime(CACHE, *plugins, handle=self.handle)
        self.told: dict[str, Status] = {}
        self.waiting = self.handle.waiting
        self.metrics = Metrics()
        self.binder = Binder(self.listen, FakeClock(), self.metrics, concurrency)

    def listen(self, decision: Decision, status: Status) -> None:
        assert decision.pod.name not in self.told
        self.told[decision.pod.name] = status

    def submit(self, name: str, holds: dict[str, float] | None = None, cycle: Cycle | None = None) -> None:
        pod = CACHE.record(make_pod(name))
        if holds:
            self.waiting.add(PodAtPermit(pod, "a", holds))
        self.binder.submit(Decision(Unit([pod], 0.0), pod, "a", cycle or Cycle(), self.runtime, holds or {}))


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    task = asyncio.create_task(bench.binder.run())
    try:
        yield bench
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def answering(name: str, point: str, answer: Any) -> type[Any]:
    async def call(self: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return type(name, (), {"name": name, point: hookimpl(call)})


async def test_a_decision_is_bound_with_its_annotations() -> None:
    cycle = Cycle()
    cycle.annotations["gpus"] = "0,1"
    async with running(Bench(DefaultBinder)) as bench:
        bench.submit("p", cycle=cycle)
        await until(lambda: "p" in bench.told)

    assert bench.told["p"].is_success
    assert bench.handle.bindings.bound == {"default/p": "a"}
    assert bench.handle.bindings.annotations == {"default/p": {"gpus": "0,1"}}
    assert bench.metrics.binding.series("success").count == 1


@pytest.mark.parametrize(
    ("skipped", "called"),
    [(frozenset(), ["pre_bind_pre_flight", "pre_bind", "post_bind"]), (frozenset({"Noting"}), [])],
    ids=["concerned", "skips the class"],
)
async def test_a_plugin_that_concerns_no_pod_of_the_class_is_not_called(
    skipped: frozenset[str], called: list[str]
) -> None:
    calls: list[str] = []

    class Noting:
        name = "Noting"

        @hookimpl
        def pre_bind_pre_flight(self) -> None:
            calls.append("pre_bind_pre_flight")

        @hookimpl
        async def pre_bind(self) -> None:
            calls.append("pre_bind")

        @hookimpl
        async def post_bind(self) -> None:
            calls.append("post_bind")

    async def expect(decision: Decision) -> Status:
        return SUCCESS

    bench = Bench(Noting, DefaultBinder)
    bench.binder = Binder(bench.listen, FakeClock(), bench.metrics, expect=expect)
    async with running(bench):
        bench.submit("p", cycle=Cycle(skipped=skipped))
        await until(lambda: "p" in bench.told and not bench.binder.pending)

    assert bench.told["p"].is_success
    assert calls == called


@pytest.mark.parametrize(
    ("plugin", "message", "by"),
    [
        (answering("Lock", "pre_bind", unschedulable("lock lost")), "lock lost", "Lock"),
        (answering("Lock", "pre_bind", Conflict(409, "Conflict", "taken")), "409 Conflict: taken", "Lock"),
        (answering("Lock", "pre_bind", KeyError("x")), "plugin Lock at pre_bind: KeyError: 'x'", "Lock"),
        (
            answering("Lock", "pre_bind", 7),
            "plugin Lock at pre_bind: must return Status or None, not 7",
            "Lock",
        ),
    ],
    ids=["rejects", "api error", "raises", "nonsense"],
)
async def test_a_failure_before_the_binding_is_told_and_nothing_is_bound(
    plugin: type[Any], message: str, by: str
) -> None:
    async with running(Bench(plugin, DefaultBinder)) as bench:
        bench.submit("p")
        await until(lambda: "p" in bench.told)

    assert (bench.told["p"].message, bench.told["p"].plugin) == (message, by)
    assert bench.handle.bindings.bound == {} and bench.metrics.binding.series("failure").count == 1


async def test_a_binding_that_fails_is_told_and_the_next_one_goes_on() -> None:
    async with running(Bench(DefaultBinder, concurrency=1)) as bench:
        bench.handle.bindings.failures.append(Conflict(409, "Conflict", "bound already"))
        bench.submit("p")
        bench.submit("q")
        await until(lambda: "q" in bench.told)

    assert bench.told["p"].code is Code.ERROR and bench.told["p"].message == "409 Conflict: bound already"
    assert bench.told["q"].is_success and bench.binder.pending == 0


async def test_a_pod_whose_locks_are_too_old_is_not_bound() -> None:
    cycle = Cycle()
    async with running(Bench(DefaultBinder)) as bench:
        cycle.bind_by = bench.handle.clock.monotonic() - 1.0
        bench.submit("p", cycle=cycle)
        await until(lambda: "p" in bench.told)

    assert bench.told["p"] == Status(Code.ERROR, (TOO_LATE,)) and bench.handle.bindings.bound == {}


async def test_a_binder_that_skips_leaves_the_pod_to_the_next() -> None:
    async with running(Bench(answering("Shy", "bind", SKIP), DefaultBinder)) as bench:
        bench.submit("p")
        await until(lambda: "p" in bench.told)
    async with running(Bench(answering("Shy", "bind", SKIP))) as alone:
        alone.submit("p")
        await until(lambda: "p" in alone.told)

    assert bench.told["p"].is_success and bench.handle.bindings.bound == {"default/p": "a"}
    assert alone.told["p"].message == "no bind plugin took the pod"


async def test_a_failure_after_the_binding_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Bench(DefaultBinder, answering("After", "post_bind", KeyError("x")))) as bench:
        bench.submit("p")
        await until(lambda: "is bound, but" in caplog.text)

    assert bench.told["p"].is_success
    assert "pod default/p is bound, but plugin After at post_bind: KeyError: 'x'" in caplog.text


def slow() -> tuple[type[Any], list[asyncio.Event], list[int]]:
    """A plugin that binds when it is told to, and how many it was binding at each start."""
    gates: list[asyncio.Event] = []
    busy: list[int] = []

    class Slow:
        name = "Slow"
        now = 0

        @hookimpl
        async def bind(self) -> None:
            self.now += 1
            busy.append(self.now)
            gates.append(asyncio.Event())
            await gates[-1].wait()
            self.now -= 1

    return Slow, gates, busy


async def test_no_more_than_so_many_are_bound_at_a_time() -> None:
    plugin, gates, busy = slow()
    async with running(Bench(plugin, concurrency=3)) as bench:
        for i in range(10):
            bench.submit(f"p{i}")
        for i in range(10):
            await until(partial(lambda n: len(gates) > n, i))
            gates[i].set()
        await until(lambda: len(bench.told) == 10)

    assert max(busy) <= 3


async def test_there_is_no_room_while_too_many_are_pending() -> None:
    plugin, gates, _ = slow()
    async with running(Bench(plugin, concurrency=1)) as bench:
        room = [asyncio.create_task(bench.binder.has_room())]
        await until(room[0].done)
        for i in range(4):
            bench.submit(f"p{i}")
        room.append(asyncio.create_task(bench.binder.has_room()))
        for i in range(2):
            await until(partial(lambda n: len(gates) > n, i))
            assert not room[1].done() and bench.binder.pending == 4 - i
            gates[i].set()
        await until(lambda: len(gates) > 2)
        assert not room[1].done()
        gates[2].set()

        await until(room[1].done)
        assert bench.binder.pending <= 1


async def test_a_held_pod_is_bound_once_it_is_allowed_and_takes_no_place_meanwhile() -> None:
    async with running(Bench(DefaultBinder, concurrency=1)) as bench:
        bench.submit("held", holds={"Gang": 60.0})
        bench.submit("free")
        await until(lambda: "free" in bench.told and len(bench.waiting) == 1)
        held = bench.waiting.get("pod-default-held")
        assert held is not None and held.node == "a" and bench.binder.pending == 0

        held.allow("Gang")
        await until(lambda: "held" in bench.told)

    assert bench.told["held"].is_success and len(bench.waiting) == 0


async def test_a_held_pod_that_is_rejected_is_not_bound() -> None:
    async with running(Bench(DefaultBinder)) as bench:
        bench.submit("p", holds={"Gang": 60.0, "Other": 60.0})
        await until(lambda: len(bench.waiting) == 1)
        next(iter(bench.waiting)).reject("Gang", "a member is gone")
        await until(lambda: "p" in bench.told)

    assert (bench.told["p"].message, bench.told["p"].plugin) == ("a member is gone", "Gang")
    assert bench.handle.bindings.bound == {} and len(bench.waiting) == 0


async def test_a_verdict_that_comes_before_the_binder_looks_stays() -> None:
    bench = Bench(DefaultBinder)
    bench.submit("p", holds={"Gang": 60.0})
    next(iter(bench.waiting)).reject("", "the pod was deleted")

    async with running(bench):
        await until(lambda: "p" in bench.told)

    assert bench.told["p"].message == "the pod was deleted" and len(bench.waiting) == 0


async def test_the_least_patient_plugin_ends_the_wait() -> None:
    async with running(Bench(DefaultBinder)) as bench:
        bench.submit("p", holds={"Long": 60.0, "Short": 0.01})
        await until(lambda: "p" in bench.told)

    assert bench.told["p"].message == 'rejected due to timeout after waiting 0.01s at plugin "Short"'
    assert bench.told["p"].plugin == "Short" and bench.told["p"].is_rejected
    assert len(bench.waiting) == 0


class GroupBench(Bench):
    """As a bench, for a group of two pods that a plugin `Gate` holds."""

    def __init__(self, *plugins: type[Any], concurrency: int = 64) -> None:
        super().__init__(*plugins)
        self.ends: list[tuple[list[str], bool]] = []
        self.binder = Binder(self.listen, FakeClock(), self.metrics, concurrency, lambda _, s, b: self._end(s, b))
        pods = [CACHE.record(make_pod(name)) for name in ("p", "q")]
        self.unit = Unit(pods, 0.0, group="g")
        for pod in pods:
            self.waiting.add(PodAtPermit(pod, "a", {"Gate"}))
        members = [Decision(self.unit, pod, "a", Cycle(), self.runtime, {"Gate": 600.0}) for pod in pods]
        self.binder.submit_group(GroupDecision(self.unit, PodGroup("default", "g", "test", 2), members, [], 1.0, True))

    def _end(self, statuses: Sequence[Status], bound: bool) -> None:
        self.ends.append(([status.message for status in statuses], bound))

    async def held(self) -> dict[str, PodAtPermit]:
        await until(lambda: len(self.waiting) == 2)
        return {waiting.pod.name: waiting for waiting in self.waiting}


async def test_a_member_that_is_rejected_at_permit_takes_the_others_along_at_once() -> None:
    async with running(GroupBench(DefaultBinder)) as bench:
        assert isinstance(bench, GroupBench)
        (await bench.held())["p"].reject("Gate", "no")
        await until(lambda: bool(bench.ends))

    assert bench.ends == [(["no", "pod default/p of the same gang: no"], False)] and not len(bench.waiting)


async def test_a_member_that_was_deleted_before_the_barrier_keeps_the_others_from_being_bound() -> None:
    async with running(GroupBench(DefaultBinder)) as bench:
        assert isinstance(bench, GroupBench)
        held = await bench.held()
        bench.unit.members.pop()
        for waiting in held.values():
            waiting.allow("Gate")
        await until(lambda: bool(bench.ends))

    assert bench.ends == [(["", "the pod was deleted"], False)] and not bench.handle.bindings.bound


class LocksAge:
    """What it locks for pod q has become too old by the time of the binding."""

    name = "LocksAge"

    @hookimpl
    async def pre_bind(self, cycle: Cycle, pod: PodInfo) -> None:
        if pod.name == "q":
            cycle.bind_by = -1.0


async def test_a_member_whose_locks_are_too_old_keeps_the_others_from_being_bound() -> None:
    async with running(GroupBench(LocksAge, DefaultBinder)) as bench:
        assert isinstance(bench, GroupBench)
        await allowed(bench)
        await until(lambda: bool(bench.ends))

    assert bench.ends == [(["", TOO_LATE], False)] and not bench.handle.bindings.bound


def gated(point: str) -> tuple[type[Any], list[asyncio.Event]]:
    """A plugin that goes on at a point when it is told to."""
    gates: list[asyncio.Event] = []

    async def wait(self: Any) -> None:
        gates.append(asyncio.Event())
        await gates[-1].wait()

    return type("Gated", (), {"name": "Gated", point: hookimpl(wait)}), gates


async def allowed(bench: GroupBench) -> None:
    """Let the group go on from permit."""
    for waiting in (await bench.held()).values():
        waiting.allow("Gate")


async def test_finishing_binds_all_of_a_group_that_is_behind_the_barrier() -> None:
    plugin, gates = gated("bind")
    async with running(GroupBench(plugin, concurrency=1)) as bench:
        assert isinstance(bench, GroupBench)
        await allowed(bench)
        await until(lambda: len(gates) == 1)
        bench.submit("late")
        finishing = asyncio.create_task(bench.binder.finish())
        for number in range(2):
            await until(partial(lambda n: len(gates) > n, number))
            assert not finishing.done()
            gates[number].set()
        await until(finishing.done)

    assert bench.ends == [(["", ""], True)] and len(gates) == 2
    assert "late" not in bench.told


async def test_finishing_binds_none_of_a_group_that_is_before_the_barrier() -> None:
    plugin, gates = gated("pre_bind")
    async with running(GroupBench(plugin, DefaultBinder, concurrency=1)) as bench:
        assert isinstance(bench, GroupBench)
        await allowed(bench)
        await until(lambda: len(gates) == 1)
        finishing = asyncio.create_task(bench.binder.finish())
        await asyncio.sleep(0)
        assert not finishing.done()
        gates[0].set()
        await until(finishing.done)

    assert not bench.ends and not bench.handle.bindings.bound and len(gates) == 1


async def test_finishing_ends_what_is_bound_at_the_moment() -> None:
    plugin, gates, _ = slow()
    async with running(Bench(plugin, concurrency=1)) as bench:
        bench.submit("p")
        bench.submit("q")
        await until(lambda: len(gates) == 1)
        finishing = asyncio.create_task(bench.binder.finish())
        await asyncio.sleep(0)
        assert not finishing.done()
        gates[0].set()
        await until(finishing.done)

    assert list(bench.told) == ["p"] and len(gates) == 1


async def test_finishing_without_work_ends_at_once() -> None:
    async with running(Bench(DefaultBinder)) as bench:
        await asyncio.wait_for(bench.binder.finish(), 5)


async def test_a_binder_that_is_cancelled_ends_after_the_pre_binds_have_cleaned_up() -> None:
    done: list[str] = []

    class Locks:
        name = "Locks"

        @hookimpl
        def pre_bind_pre_flight(self) -> Status:
            return SUCCESS

        @hookimpl
        async def pre_bind(self) -> None:
            done.append("locked")
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                done.append("unlocked")

    async def expect(decision: Decision) -> Status:
        return SUCCESS

    bench = Bench(Locks)
    bench.binder = Binder(bench.listen, FakeClock(), bench.metrics, expect=expect)
    async with running(bench):
        bench.submit("p")
        await until(lambda: done == ["locked"])

    assert done == ["locked", "unlocked"]
