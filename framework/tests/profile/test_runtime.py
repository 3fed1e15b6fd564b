"""The points of one profile that concern one pod, and the handle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import SUCCESS, PodInfo, Status, config, hookimpl, model, resources, unschedulable, wait
from gangline.errors import ConfigError, Unavailable
from gangline.profile.assembly import judging_runtimes
from gangline.status import Code
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.priority_sort import PrioritySort
from gangline_plugins.scheduling_gates import SchedulingGates

CACHE = cluster([make_node("a", cpu=2), make_node("b", cpu=8)])
POD = CACHE.record(make_pod("p", cpu=4))


def plugin(name: str, **hooks: Callable[..., Any]) -> type[Any]:
    return type(name, (), {"name": name, **{point: hookimpl(call) for point, call in hooks.items()}})


def answering(answer: Any) -> Callable[[Any], Any]:
    def call(self: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return call


def test_the_first_refusal_at_pre_enqueue_counts() -> None:
    refused = make_runtime(
        CACHE,
        plugin("Open", pre_enqueue=answering(None)),
        plugin("Quota", pre_enqueue=answering(unschedulable("used up"))),
        plugin("Late", pre_enqueue=answering(unschedulable("too late"))),
    ).pre_enqueue(POD)

    assert (refused.message, refused.plugin) == ("used up", "Quota")
    assert make_runtime(CACHE, SchedulingGates).pre_enqueue(POD) is SUCCESS


def test_a_fault_at_pre_enqueue_holds_the_pod_and_says_why() -> None:
    status = make_runtime(CACHE, plugin("Broken", pre_enqueue=answering(KeyError("x")))).pre_enqueue(POD)

    assert status.code is Code.ERROR and status.message == "plugin Broken at pre_enqueue: KeyError: 'x'"


@given(st.lists(st.lists(st.sampled_from(["", "", "refused", "raises"]), min_size=2, max_size=2), max_size=8))
def test_many_pods_are_held_as_each_of_them_is(pods: list[list[str]]) -> None:
    def hook(plugin: int) -> Callable[[Any, PodInfo], Status | None]:
        def call(self: Any, pod: PodInfo) -> Status | None:
            said = pods[int(pod.name)][plugin]
            if said == "raises":
                raise KeyError(pod.name)
            return unschedulable(f"{said} {pod.name}") if said else None

        return call

    runtime = make_runtime(CACHE, plugin("First", pre_enqueue=hook(0)), plugin("Second", pre_enqueue=hook(1)))
    records = [CACHE.record(make_pod(str(number))) for number in range(len(pods))]

    each = {pod.uid: status for pod in records if not (status := runtime.pre_enqueue(pod)).is_success}
    assert runtime.held(records) == each


def test_the_queue_is_sorted_by_the_plugin() -> None:
    pod = CACHE.record(make_pod("p", priority=7))

    assert make_runtime(CACHE, PrioritySort).sort_key(pod, 3.0) == (-7, 3.0)


def test_permit_collects_who_holds_the_pod_unless_one_rejects_it() -> None:
    holds = [plugin("One", permit=answering(wait(5))), plugin("Two", permit=answering(wait(9)))]
    refuses = plugin("No", permit=answering(unschedulable("no")))
    runtime, refused = make_runtime(CACHE, *holds), make_runtime(CACHE, *holds, refuses)
    cycle = runtime.evaluator.filter(POD).cycle

    assert runtime.permit(cycle, POD, "a") == (SUCCESS, {"One": 5.0, "Two": 9.0})
    assert refused.permit(cycle, POD, "a") == (unschedulable("no").by("No"), {})


@pytest.mark.parametrize("point", ["pre_bind", "bind"])
async def test_an_async_answer_is_the_plugins_and_its_fault_names_it(point: str) -> None:
    async def fails(self: Any) -> Status:
        raise KeyError("x")

    runtime = make_runtime(CACHE, plugin("Broken", **{point: fails}))
    call: Callable[..., Awaitable[Status]] = getattr(runtime, point)

    status = await call(runtime.evaluator.filter(POD).cycle, POD, "a")

    assert (status.code, status.plugin) == (Code.ERROR, "Broken")
    assert status.message == f"plugin Broken at {point}: KeyError: 'x'"


async def test_a_bind_that_is_not_async_fails_its_pod_alone() -> None:
    runtime = make_runtime(CACHE, plugin("Plain", bind=answering(SUCCESS)))

    status = await runtime.bind(runtime.evaluator.filter(POD).cycle, POD, "a")

    assert status.code is Code.ERROR and status.message.startswith("plugin Plain at bind: TypeError")


# The handle


def test_a_plugin_may_ask_what_would_fit_as_the_columns_are_now() -> None:
    runtime = make_runtime(CACHE, NodeResourcesFit)

    assert runtime.handle.filter(POD, np.array([1, 0])).tolist() == [True, False]
    assert runtime.handle.diagnose(POD).message() == "0/2 nodes are available: 1 Insufficient cpu."


def test_nothing_can_be_asked_while_plugins_are_being_built() -> None:
    handle = FakeHandle(CACHE)

    with pytest.raises(ConfigError, match=r"filter\(\) is not available while plugins are being built"):
        handle.filter(POD, np.array([0]))
    with pytest.raises(ConfigError, match=r"diagnose\(\) is not available while plugins are being built"):
        handle.diagnose(POD)
    with pytest.raises(ConfigError, match=r"find_places\(\) is not available while plugins are being built"):
        handle.find_places([POD], np.array([True, True]))
    with pytest.raises(ConfigError, match=r"attempt\(\) is not available while plugins are being built"):
        handle.attempt("default/group")


async def test_without_a_queue_nothing_waits_and_without_an_api_server_it_is_unavailable() -> None:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    loaded = config.load(f"{head}profiles: [{{schedulerName: one}}]\n", "")
    handle = judging_runtimes(loaded, CACHE)["one"].handle

    assert not handle.nominated() and not handle.is_queued("default/group") and handle.attempt("default/group") is None
    assert handle.find_places([POD], np.array([True, True])) is None and not handle.preemption_is_reviewed(POD)
    with pytest.raises(Unavailable, match="there is no API server to ask"):
        await handle.client.get(resources.NODES, "a")


def test_a_counter_is_the_same_at_each_call() -> None:
    handle = FakeHandle(CACHE)

    handle.metric("picked", "Picked.", ["node"]).labels("a").inc()
    handle.metric("picked", "Picked.", ["node"]).labels("a").inc()

    assert handle.metric("picked", "Picked.", ["node"]).labels("a")._value.get() == 2


def test_work_is_kept_until_somebody_starts_it() -> None:
    async def work() -> None:
        return None

    handle = FakeHandle(CACHE)
    handle.run(work)
    handle.spawn(work)

    assert handle.background.work == [("", work)] and handle.background.spawned == [work]


def test_nominations_are_those_of_the_queue_and_without_one_there_are_none() -> None:
    handle = FakeHandle(CACHE)
    assert handle.nominated() == {}

    handle.fake_pending.nominations = {"a": {POD.uid: POD}}

    assert handle.nominated() == {"a": {POD.uid: POD}}


def test_the_nodes_of_the_handle_are_the_clusters() -> None:
    assert FakeHandle(CACHE).nodes.names == ["a", "b"]
    assert isinstance(CACHE.nodes.view().node(0), model.Node)
