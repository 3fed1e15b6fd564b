"""A nomination that cannot be written, for whatever reason, costs no binding."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import Cycle, Status, hookimpl
from gangline.api.pod_group import PodGroup
from gangline.deciding.group_decisions import GroupDecision
from gangline.deciding.scheduling import Decision
from gangline.errors import InvalidObject
from gangline.loop.binding import Binder
from gangline.queueing.units import Unit
from gangline.status import SUCCESS
from gangline.testing import FakeClock, make_pod
from gangline_plugins.default_binder import DefaultBinder

from ..eventually import until
from .test_binding import CACHE, Bench, running


class Slow:
    """A plugin whose pre-binds take long."""

    name = "Slow"

    @hookimpl
    def pre_bind_pre_flight(self) -> Status:
        return SUCCESS

    @hookimpl
    async def pre_bind(self) -> None:
        await asyncio.sleep(0.1)


async def fail(decision: Decision) -> Status:
    raise InvalidObject("Pod default/p: spec", None, "the answer of the API server does not fit")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("gangline.loop.binding.SOON", 0.01)
    made = Bench(Slow, DefaultBinder)
    made.binder = Binder(made.listen, FakeClock(), made.metrics, expect=fail)
    return made


@pytest.mark.parametrize("holds", [None, {"Gate": 5.0}], ids=["long pre-binds", "permit"])
async def test_a_pod_is_bound_though_its_node_cannot_be_written(bench: Bench, holds: dict[str, float] | None) -> None:
    async with running(bench):
        bench.submit("p", holds)
        if holds:
            waiting = bench.waiting.get(CACHE.record(make_pod("p")).uid)
            assert waiting is not None
            waiting.allow("Gate")
        await until(lambda: "p" in bench.told)

    assert bench.told["p"].is_success


async def test_a_gang_is_bound_though_its_nodes_cannot_be_written(bench: Bench) -> None:
    told: list[Any] = []
    bench.binder = Binder(
        bench.listen, FakeClock(), bench.metrics, expect=fail, group_listener=lambda *result: told.append(result)
    )
    pods = [CACHE.record(make_pod(name)) for name in ("m-1", "m-2")]
    unit = Unit(pods, 0.0)
    async with running(bench):
        members = [Decision(unit, pod, "a", Cycle(), bench.runtime, {}) for pod in pods]
        bench.binder.submit_group(GroupDecision(unit, PodGroup("default", "g", "test", 2), members, [], 1.0, True))
        await until(lambda: bool(told))

    ((_, statuses, bound),) = told
    assert bound and all(status.is_success for status in statuses)


async def test_a_step_of_a_gang_that_raises_ends_the_gang_and_does_not_hang_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    bench.binder = Binder(bench.listen, FakeClock(), bench.metrics, group_listener=lambda *result: told.append(result))
    pod = CACHE.record(make_pod("m"))
    unit = Unit([pod], 0.0)

    async def broken(*args: Any) -> Status:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(bench.runtime, "pre_bind", broken)
    async with running(bench):
        members = [Decision(unit, pod, "a", Cycle(), bench.runtime, {})]
        bench.binder.submit_group(GroupDecision(unit, PodGroup("default", "g", "test", 1), members, [], 1.0, True))
        await until(lambda: bool(told))

    ((_, (status,), bound),) = told
    assert not bound and status.message == "ZeroDivisionError: oops"
