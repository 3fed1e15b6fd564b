"""What plugins do wrong is counted, and in the log with its traceback; not too often."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from gangline import Action, NodeView, PluginError, Reason, Status, hookimpl, model, on, unschedulable, wait
from gangline.failures import PAUSE, Failures
from gangline.kube.resources import NODES, PODS
from gangline.model.volumes import ClaimVolume
from gangline.profile.background import keep_going
from gangline.queueing.queue import SchedulingQueue
from gangline.simulate import SimulatedCluster
from gangline.simulate.time import run
from gangline.status import Code
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeClock, FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline_plugins.default_preemption.levels import PriorityLevels
from gangline_plugins.node_ports import PortsInUse
from gangline_plugins.topology_annotations.siblings import Siblings as OwnersPods
from gangline_plugins.volumes.volume_restrictions import VolumesInUse

from .profile.test_odd_plugins import check_books


def plugin(**hooks: Callable[..., Any]) -> type[Any]:
    body = {point: hookimpl(call) for point, call in hooks.items()}
    return type("Odd", (), {"name": "Odd", "reasons": (Reason("odd"),), **body})


def fails(*args: Any) -> Any:
    raise KeyError("x")


def exits(self: Any) -> Any:
    raise SystemExit("bye")


# The log


def test_a_failure_is_in_the_log_with_its_traceback_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    cache, metrics = cluster([make_node("a")]), Metrics()
    runtime = make_runtime(cache, plugin(filter=lambda self: fails()), metrics=metrics)

    with pytest.raises(PluginError, match=r"^plugin Odd at filter: KeyError: 'x'$"):
        runtime.filter(cache.record(make_pod("p")))

    assert "in fails" in caplog.text and caplog.messages.count("plugin Odd at filter: KeyError: 'x'") == 1
    text = generate_latest(metrics.registry).decode()
    assert 'gangline_plugin_failures_total{extension_point="filter",plugin="Odd"} 1.0' in text


def test_the_log_does_not_repeat_itself_within_a_minute_and_says_what_it_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    failures = Failures(clock.monotonic)
    for _ in range(5):
        failures.raised("Odd", "filter", KeyError("x"))
    for number in range(20):
        failures.raised("Odd", "filter", KeyError(number))
    first = len(caplog.messages)
    clock.advance(PAUSE)
    failures.raised("Odd", "filter", KeyError("x"))

    assert first == 5 and failures.counts["Odd", "filter"] == 26
    assert caplog.messages[-1] == "plugin Odd at filter: KeyError: 'x' (and 20 more lines like this, left out)"


def test_a_failure_that_goes_through_another_plugin_is_counted_once() -> None:
    failures = Failures()
    error = failures.raised("Inner", "filter", KeyError("x"))

    assert failures.raised("Outer", "post_filter", error) is error
    assert dict(failures.counts) == {("Inner", "filter"): 1}


@pytest.mark.parametrize("point", ["filter", "reserve", "bind"])
async def test_a_hook_that_holds_the_loop_is_named(point: str, caplog: pytest.LogCaptureFixture) -> None:
    def holds(self: Any) -> None:
        until = time.perf_counter() + 0.06
        while time.perf_counter() < until:
            pass

    async def holds_too(self: Any) -> None:
        await asyncio.sleep(0)
        holds(self)

    def filters(self: Any, nodes: NodeView) -> Any:
        holds(self)
        return nodes.full(False).astype("uint8")

    cache, metrics = cluster([make_node("a")]), Metrics()
    calls: dict[str, Any] = {"filter": filters, "reserve": holds, "bind": holds_too}
    runtime = make_runtime(cache, plugin(**{point: calls[point]}), metrics=metrics)
    pod = cache.record(make_pod("p"))
    cycle = runtime.filter(pod).cycle
    runtime.reserving.one(cycle, pod, "a")
    await runtime.bind(cycle, pod, "a")

    (line,) = caplog.messages
    assert re.fullmatch(rf"plugin Odd at {point} held the loop for \d+\.\d{{3}} s", line)
    assert metrics.failures.slow_counts == {("Odd", point): 1}


# Hooks


@pytest.mark.parametrize(
    "hook", [fails, exits, lambda self: "yes", lambda self: wait(1)], ids=["fails", "exits", "a text", "a wait"]
)
def test_a_pod_that_pre_enqueue_fails_on_is_held_and_told(hook: Callable[..., Any]) -> None:
    cache = cluster()
    handle = FakeHandle(cache)
    runtime = make_runtime(cache, plugin(pre_enqueue=hook), handle=handle)

    status = runtime.lets_in(cache.record(make_pod("p")))

    assert status.code is Code.ERROR and status.message.startswith("plugin Odd at pre_enqueue: ")
    assert [(e.pod, e.reason, e.note) for e in handle.fake_recorder.events] == [
        ("default/p", "FailedScheduling", status.message)
    ]


@pytest.mark.parametrize(
    "key",
    [None, 5, "a", (), ("a",), (math.nan, 1.0), ((1, 2), 3), (1.0,) * 17, SystemExit("bye")],
    ids=repr,
)
def test_a_sort_key_that_cannot_be_compared_puts_its_pod_last(key: Any) -> None:
    def sort(self: Any, pod: Any, since: float) -> Any:
        if pod.name != "odd":
            return (1, since)
        if isinstance(key, BaseException):
            raise key
        return key

    cache = cluster()
    runtime = make_runtime(cache, plugin(queue_sort=sort))
    queue = SchedulingQueue()
    queue.serve("default-scheduler", runtime.sort_key, runtime.admit, {})
    for name in ("odd", "b", "c"):
        queue.add(cache.record(make_pod(name)), 0.0)

    popped = [unit.pod.name for _ in range(3) if (unit := queue.pop(0.0)) is not None]
    assert popped == ["b", "c", "odd"]


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_time_that_no_pod_can_wait_is_the_plugins_failure(seconds: float) -> None:
    cache = cluster([make_node("a")])
    runtime = make_runtime(cache, plugin(permit=lambda self: wait(seconds)))
    pod = cache.record(make_pod("p"))

    with pytest.raises(PluginError, match="plugin Odd at permit: ValueError: a pod waits for a finite number"):
        runtime.reserving.one(runtime.filter(pod).cycle, pod, "a")


def test_a_verdict_without_a_reason_is_the_plugins_failure() -> None:
    cache = cluster([make_node("a")])
    runtime = make_runtime(cache, plugin(filter=lambda self, nodes: nodes.full(True).astype("uint8") * 7))
    filtered = runtime.filter(cache.record(make_pod("p")))

    with pytest.raises(PluginError, match=r"^plugin Odd at filter: answered 7, and has 1 reasons$"):
        runtime.evaluator.diagnose(filtered).message()


def test_a_status_says_what_is_wrong_with_it_where_it_is_made() -> None:
    with pytest.raises(TypeError, match="the reasons of a status are a tuple of texts, not 'no room'"):
        Status(Code.UNSCHEDULABLE, "no room")  # type: ignore[arg-type]  # what a plugin must not do
    assert unschedulable("no room").reasons == ("no room",)


def test_a_hint_that_raises_counts_as_a_yes() -> None:
    events = (on("nodes", Action.ADD, lambda pod, old, new: exits(None)),)
    cache, metrics = cluster(), Metrics()
    runtime = make_runtime(cache, plugin(events_to_register=lambda self: events, reserve=fails), metrics=metrics)
    (event,) = list(runtime.profile.events["Odd"] or ())

    assert event.hint is not None and event.hint(cache.record(make_pod("p")), None, None)
    assert metrics.failures.counts == {("Odd", "QueueingHint"): 1}


@pytest.mark.parametrize("kind", ["metric", "gauge"])
def test_a_metric_with_other_labels_than_before_is_the_plugins_failure(kind: str) -> None:
    make = getattr(FakeHandle(cluster()), kind)
    make("picked", "Picked.", ["node"])

    with pytest.raises(PluginError, match=r"picked has the labels \('node',\), not \('pod',\)"):
        make("picked", "Picked.", ["pod"])
    with pytest.raises(PluginError, match="scheduler_schedule_attempts"):
        make("scheduler_schedule_attempts", "Taken.")


# Background work


def test_background_work_that_fails_is_started_again_later_and_later() -> None:
    failures, starts = Failures(), []

    async def work() -> None:
        starts.append(asyncio.get_running_loop().time())
        if len(starts) == 3:
            raise SystemExit("bye")
        if len(starts) < 5:
            raise KeyError("x")

    run(keep_going(work, "Odd", failures))

    assert starts == [0.0, 1.0, 3.0, 7.0, 15.0] and failures.counts == {("Odd", "Background"): 4}


def test_work_of_a_plugin_that_exits_ends_nothing_else() -> None:
    class Works:
        name = "Works"

        def __init__(self, handle: Any) -> None:
            self._handle = handle
            handle.run(self.work)

        async def work(self) -> None:
            self._handle.spawn(self.work_once)
            raise SystemExit("bye")

        async def work_once(self) -> None:
            raise asyncio.CancelledError

        @hookimpl
        def reserve(self) -> None:
            """So that it is at some point."""

    world = SimulatedCluster()
    world.create(NODES, make_node("a"))

    async def story() -> dict[tuple[str, str], int]:
        async with world.scheduling(CONFIG.replace("Odd", "Works"), plugins=[Works]) as scheduler:
            await asyncio.sleep(5)
            world.create(PODS, make_pod("p"))
            await world.until(lambda: "p" in world.bound())
            return scheduler.metrics.failures.counts

    assert world.play(story)["Works", "Background"] >= 4


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: Odd}]}}
"""

# Trackers


class Counts:
    """Counts pods by row, and cannot count bad ones."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def add(self, pod: Any, row: int) -> None:
        """One more."""
        self.rows.append(row)
        if pod.name == "bad":
            raise KeyError("x")

    def remove(self, pod: Any, row: int) -> None:
        """One less."""
        self.rows.remove(row)


class Forgiving(Counts):
    """Can start anew."""

    def clear(self) -> None:
        """Nothing is counted."""
        self.rows = []


@pytest.mark.parametrize("kind", [Counts, Forgiving])
def test_a_pod_that_a_tracker_cannot_take_is_not_placed_and_nobody_is_out_of_step(kind: type[Counts]) -> None:
    cache = cluster([make_node("a")], [make_pod("p", gpus=2, node="a")])
    kinds = [cast("type[Counts]", type(f"Kind{n}", (kind if n == 1 else Siblings,), {})) for n in range(3)]
    counts = [cache.tracker(each) for each in kinds]

    with pytest.raises(PluginError, match="at Tracker: KeyError: 'x'"):
        cache.assume(cache.record(make_pod("bad", gpus=3)), 0)
    cache.mend_trackers()

    check_books(cache)
    assert not cache.trackers.broken and [each.rows for each in counts] == [[0], [0], [0]]
    assert not cache.is_assumed("pod-default-bad")


class Siblings(Forgiving):
    """Counts every pod."""

    def add(self, pod: Any, row: int) -> None:
        """One more."""
        self.rows.append(row)


@pytest.mark.parametrize("kind", [Counts, Forgiving])
def test_a_tracker_that_cannot_let_go_is_told_anew_or_its_plugin_fails(kind: type[Counts]) -> None:
    class LosesIt(kind):  # type: ignore[misc, valid-type]  # the parameter is a class
        def remove(self, pod: Any, row: int) -> None:
            raise SystemExit("bye")

    class Uses:
        name = "Uses"
        reasons = (Reason("never"),)

        def __init__(self, handle: Any) -> None:
            self.counts = handle.state.tracker(LosesIt)

        @hookimpl
        def filter(self, nodes: NodeView) -> Any:
            return nodes.full(False).astype("uint8")

    cache = cluster([make_node("a")], [make_pod("p", gpus=2, node="a"), make_pod("q", gpus=2, node="a")])
    runtime = make_runtime(cache, Uses)
    other = make_runtime(cache, plugin(reserve=lambda self: None))
    cache.remove_pod("pod-default-p")
    pod = cache.record(make_pod("new"))

    check_books(cache)
    assert other.filter(pod).feasible.any()
    if kind is Forgiving:
        assert runtime.filter(pod).feasible.any() and runtime.profile.plugins["Uses"].counts.rows == [0]
    else:
        with pytest.raises(PluginError, match=r"^plugin Uses at Tracker: what it counts .*SystemExit: bye"):
            runtime.filter(pod)


def test_what_is_undone_comes_back_whatever_a_tracker_does() -> None:
    cache = cluster([make_node("a")], [make_pod("p", gpus=2, node="a"), make_pod("bad", gpus=3, node="a")])
    cache.tracker(Forgiving)
    with cache.transaction() as tx:
        for pod in list(cache.pods.values()):
            tx.unplace(pod)

    check_books(cache)
    assert len(cache.nodes.pods_on[0]) == 2


def test_steps_outside_of_a_block_are_refused() -> None:
    cache = cluster([make_node("a")], [make_pod("p", gpus=2, node="a")])
    (pod,) = cache.pods.values()

    with pytest.raises(ValueError, match="no block is open"):
        cache.transaction().unplace(pod)
    with cache.transaction() as tx, pytest.raises(ValueError, match="it is on 0"):
        tx.place(pod, 0)
    check_books(cache)


@pytest.mark.parametrize("kind", [OwnersPods, PortsInUse, PriorityLevels, VolumesInUse])
def test_our_trackers_can_start_anew(kind: type[Any]) -> None:
    labels = {"app": "a"}
    owner = model.OwnerReference(kind="Job", name="j", uid="j", controller=True)
    container = model.Container(name="main", ports=[model.ContainerPort(host_port=80, container_port=80)])
    claim = model.Volume(name="data", persistent_volume_claim=ClaimVolume(claim_name="data"))
    pods = [make_pod(n, node="a", labels=labels, containers=[container], volumes=[claim], priority=5) for n in "pq"]
    for each in pods:
        each.metadata.owner_references.append(owner)
    cache = cluster([make_node("a")], pods[:1])
    mended, fresh = cache.tracker(kind), kind()
    (pod,) = cache.pods.values()
    fresh.add(pod, 0)
    mended.add(cache.record(pods[1]), 0)  # what it should not know
    cache.trackers.broken[id(mended)] = "out of step"
    cache.mend_trackers()

    assert repr(vars(mended)) == repr(vars(fresh)) and not cache.trackers.broken
