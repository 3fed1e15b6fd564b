"""A node that goes while pods are being bound to it: nothing more is done for that binding, the pods queue again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gangline import SKIP, Cycle, PodInfo, Status, hookimpl, wait
from gangline.api.pod_group import PodGroup
from gangline.deciding.group_decisions import GroupDecision
from gangline.deciding.scheduling import Decision
from gangline.kube.resources import NODES, PODS
from gangline.loop.binding import Binder
from gangline.queueing.units import Unit
from gangline.simulate import SimulatedCluster
from gangline.state.cache import Cache
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeClock, FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline.testing.gang_stories import PROFILE, GangCluster
from gangline_plugins.default_binder import DefaultBinder

from ..eventually import until

GONE = "the node a that was chosen is no longer there"


def step(name: str, point: str, asked: list[str], act: Callable[[], object] = lambda: None, answer: Any = None) -> Any:
    """A plugin with one step of a binding: it notes that it was asked, and does something."""

    async def call(self: Any) -> Any:
        asked.append(name)
        act()
        return answer

    return type(name, (), {"name": name, point: hookimpl(call)})


def assumed(cache: Cache, name: str, node: str = "a") -> PodInfo:
    pod = cache.record(make_pod(name))
    row = cache.nodes.row_of(node)
    assert row is not None
    cache.assume(pod, row)
    return pod


@pytest.mark.parametrize("comes_back", [False, True], ids=["gone", "another of its name"])
@pytest.mark.parametrize(
    ("points", "asked"),
    [
        pytest.param(("pre_bind", "pre_bind", "bind"), ["First"], id="before devices are locked"),
        pytest.param(("bind", "pre_bind", "bind"), ["Second", "First"], id="between two binders"),
    ],
)
async def test_no_further_step_of_a_binding_is_taken(points: Sequence[str], asked: list[str], comes_back: bool) -> None:
    cache, done, told = cluster([make_node("a")]), list[str](), list[Status]()

    def go() -> None:
        cache.remove_node("a")
        if comes_back:
            cache.upsert_node(make_node("a"))

    first, second, third = points
    plugins = (step("First", first, done, go, SKIP if first == "bind" else None), step("Second", second, done))
    runtime = make_runtime(cache, *plugins, step("Third", third, done))
    binder = Binder(lambda _, status: told.append(status), FakeClock(), Metrics())
    pod = assumed(cache, "p")
    binder.submit(Decision(Unit([pod], 0.0), pod, "a", Cycle(), runtime, {}))
    task = asyncio.create_task(binder.run())
    await until(lambda: bool(told))
    task.cancel()

    assert [status.message for status in told] == [GONE] and told[0].is_rejected
    assert done == asked


async def test_nothing_of_a_gang_is_bound_when_a_node_goes_before_the_first_of_its_binds() -> None:
    cache, asked, ends = cluster([make_node("a"), make_node("b")]), list[str](), list[tuple[list[str], bool]]()
    busy = asyncio.Event()

    class Slow:
        name = "Slow"

        @hookimpl
        async def pre_bind(self, pod: PodInfo) -> None:
            if pod.name == "other":
                await busy.wait()

    handle = FakeHandle(cache)
    runtime = make_runtime(cache, Slow, step("Lock", "pre_bind", asked), DefaultBinder, handle=handle)
    binder = Binder(
        lambda _, status: None,
        FakeClock(),
        Metrics(),
        concurrency=1,
        group_listener=lambda _, statuses, bound: ends.append(([each.message for each in statuses], bound)),
    )
    other = assumed(cache, "other", "b")
    pods = [assumed(cache, "p"), assumed(cache, "q", "b")]
    unit = Unit(pods, 0.0, group="g")
    members = [Decision(unit, pod, pod.node_name, Cycle(), runtime, {}) for pod in pods]
    binder.submit_group(GroupDecision(unit, PodGroup("default", "g", "test", 2), members, [], 1.0, True))
    task = asyncio.create_task(binder.run())
    await until(lambda: binder.pending == 2)
    binder.submit(Decision(Unit([other], 0.0), other, "b", Cycle(), runtime, {}))  # behind the two pre-binds
    await until(lambda: asked == ["Lock", "Lock"] and binder.pending == 3)  # the binds are behind this one
    cache.remove_node("a")
    busy.set()
    await until(lambda: bool(ends))
    task.cancel()

    assert ends == [([GONE, ""], False)]
    assert handle.bindings.bound.keys() <= {"default/other"}


class Approval:
    """Holds every pod until somebody lets go."""

    name = "Approval"

    @hookimpl
    def permit(self) -> Status:
        return wait(600.0)


def with_approval(text: str) -> str:
    return text.replace("enabled: [", "enabled: [{name: Approval}, ")


SINGLE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: []
"""


def test_a_pod_that_waits_at_permit_is_tried_on_another_node_at_once() -> None:
    nodes = SimulatedCluster()
    nodes.create(NODES, make_node("a"))

    async def story() -> None:
        async with nodes.scheduling(with_approval(SINGLE), plugins=[Approval]) as scheduler:
            nodes.create(PODS, make_pod("p", cpu=1, memory=0, gpus=0))
            await nodes.until(lambda: len(scheduler.waiting) == 1)
            nodes.create(NODES, make_node("b"))
            nodes.server.delete(NODES, "a")
            await nodes.until(lambda: [each.node for each in scheduler.waiting] == ["b"], seconds=0.5)
            next(iter(scheduler.waiting)).allow("Approval")
            await nodes.until(lambda: nodes.bound() == {"p": "b"})

    nodes.play(story)
    assert GONE in nodes.notes("p")


def test_a_gang_that_waits_at_permit_leaves_all_its_nodes_and_is_tried_again_at_once() -> None:
    gangs = GangCluster(leaves=2)
    gangs.add_gang("g", 4)

    async def story() -> None:
        text = with_approval(PROFILE)
        async with gangs.scheduling(text, plugins=[Approval]) as scheduler:
            await gangs.until(lambda: len(scheduler.waiting) == 4)
            taken = {each.node for each in scheduler.waiting}
            gangs.server.delete(NODES, min(taken))
            await gangs.until(
                lambda: len(scheduler.waiting) == 4 and not taken & {each.node for each in scheduler.waiting},
                seconds=0.5,
            )
            for each in list(scheduler.waiting):
                each.allow("Approval")
            await gangs.until(lambda: len(gangs.bound()) == 4)
            assert not taken & set(gangs.bound().values())

    gangs.play(story)
