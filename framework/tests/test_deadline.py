"""A decision that takes too long is given up: nothing has changed, it is said why, and it is tried ever later."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import Cycle, DeadlineExceeded, GroupAttempt, NodeView, PluginError, PodInfo, hookimpl
from gangline.deadline import Deadline, exceeded
from gangline.deciding.group_decisions import GroupRejection
from gangline.deciding.group_search import decide_group
from gangline.deciding.scheduling import Decision, Rejection, decide
from gangline.kube.resources import NODES, PODS
from gangline.loop.scheduler import Options
from gangline.queueing.backing_off import MAX_OVERRUN_BACKOFF, QueueSettings
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Unit
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.state.cache import Cache
from gangline.status import SUCCESS, CodeColumn, codes
from gangline.testing import cluster, make_node, make_pod, make_runtime
from gangline.testing.gang_stories import GangCluster, profile_with
from gangline.testing.gangs import GROUP, REQUIRED, Gangs, fabric
from gangline_plugins.default_preemption import DefaultPreemption
from gangline_plugins.gang_preemption import GangPreemption
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.reservation import Reservation


def after(looks: int) -> Deadline:
    """A deadline that has passed when it is looked at for the nth time."""
    return Deadline(looks / 1000, clock=(look / 1000 for look in range(10_000)).__next__)


def state_of(cache: Cache) -> dict[str, Any]:
    """All that a decision could have changed."""
    nodes = cache.nodes
    return {
        "requested": nodes.requested.copy().tolist(),
        "nonzero": nodes.nonzero.copy().tolist(),
        "pods on": [sorted(pods) for pods in nodes.pods_on],
        "rows": {uid: pod.row for uid, pod in cache.pods.items()},
        "assumed": cache.assumed,
    }


class Slow:
    """A filter that works until the deadline of its cycle has passed."""

    name = "Slow"
    reasons = ()

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Never comes to an end by itself."""
        while True:
            cycle.deadline.check()


class Busy:
    """A plugin that helps a group for as long as it may."""

    name = "Busy"

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> None:
        """Never comes to an end by itself."""
        while True:
            attempt.deadline.check()


def test_a_deadline_counts_cpu_time_of_this_thread_only() -> None:
    deadline = Deadline(0.02)
    time.sleep(0.05)

    assert not deadline.passed
    while not deadline.passed:
        sum(range(1000))
    with pytest.raises(DeadlineExceeded, match=r"longer than 0\.02 s of CPU time"):
        deadline.check()


def test_a_deadline_that_is_given_the_time_reads_no_clock() -> None:
    def clock() -> float:
        raise AssertionError("read")

    assert Deadline(0.5, clock, now=3.0).seconds == 0.5
    assert Deadline(0.5, lambda: 3.4, now=3.0).left == pytest.approx(0.1)


def test_another_deadline_goes_by_the_same_clock() -> None:
    shows = [0.0]
    first = Deadline(1.0, lambda: shows[0])
    shows[0] = 2.0
    second = first.another(3.0)

    assert first.passed and not second.passed
    shows[0] = 5.0
    assert second.passed


def test_a_deadline_is_found_behind_the_fault_of_a_plugin() -> None:
    try:
        raise PluginError("Mine", "filter", "x") from DeadlineExceeded(1.0)
    except PluginError as error:
        assert exceeded(error)
    assert not exceeded(PluginError("Mine", "filter", "x"))


def test_a_pod_whose_filter_works_for_too_long_is_late_and_nothing_has_changed() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    before = state_of(cache)

    decided = decide(
        Unit([cache.record(make_pod("p"))], added=0.0), make_runtime(cache, Slow), cache, {}, Deadline(0.02)
    )

    assert isinstance(decided, Rejection) and decided.is_late
    assert decided.message == "the decision took longer than 0.02 s of CPU time"
    assert state_of(cache) == before


def test_the_next_decision_has_a_deadline_of_its_own() -> None:
    cache = cluster([make_node("a")])
    runtime = make_runtime(cache, NodeResourcesFit)
    late = decide(Unit([cache.record(make_pod("p"))], added=0.0), runtime, cache, {}, after(1))

    assert isinstance(late, Rejection) and late.is_late
    assert isinstance(decide(Unit([cache.record(make_pod("q"))], added=0.0), runtime, cache, {}), Decision)


def test_a_group_is_late_when_a_plugin_helps_it_for_too_long() -> None:
    gangs = Gangs(fabric(), Busy)
    pods = gangs.gang("a", 64)
    unit = Unit(pods, added=0.0, group=gangs.runtime.group_key(pods[0]))

    decided = decide_group(unit, gangs.runtime, gangs.cache, {}, 0.0, Deadline(0.05))

    assert isinstance(decided, GroupRejection) and decided.is_late and decided.is_error


@given(looks=st.integers(1, 400), size=st.integers(2, 12), required=st.sampled_from(["", "leaf", "spine"]))
def test_a_group_whose_deadline_passes_at_any_moment_leaves_all_columns_as_they_were(
    looks: int, size: int, required: str
) -> None:
    gangs = Gangs(fabric(nodes=3), GangPreemption, Reservation)
    for node in ("s0-l0-n0", "s0-l1-n0", "s1-l2-n1"):
        gangs.occupy(node, 8)
    pods = gangs.gang("a", size, annotations={REQUIRED: required} if required else None, priority=10)
    for number, pod in enumerate(pods[::2]):  # unlike members are tried one kind after the other
        pods[number * 2] = gangs.pod("a", 100 + number, gpus=5 + number % 3, priority=10, host_network=bool(number % 2))
        del pod
    before = state_of(gangs.cache)
    unit = Unit(pods, added=0.0, group=gangs.runtime.group_key(pods[0]))

    decided = decide_group(unit, gangs.runtime, gangs.cache, {}, 0.0, after(looks))

    if isinstance(decided, GroupRejection):
        assert state_of(gangs.cache) == before
        assert all(pod.row < 0 for pod in pods)
    assert not gangs.handle.deadline.passed


@given(looks=st.integers(1, 60))
def test_a_pod_whose_deadline_passes_in_preemption_leaves_all_columns_as_they_were(looks: int) -> None:
    nodes = [make_node(f"n{i}", cpu=4) for i in range(6)]
    pods = [make_pod(f"p{i}{j}", cpu=1 + j, node=f"n{i}", priority=j) for i in range(6) for j in range(2)]
    cache = cluster(nodes, pods)
    before = state_of(cache)
    runtime = make_runtime(cache, NodeResourcesFit, DefaultPreemption)

    decided = decide(Unit([cache.record(make_pod("new", cpu=4, priority=9))], 0.0), runtime, cache, {}, after(looks))

    assert isinstance(decided, Rejection)
    assert decided.is_late == (decided.nominated_node_name is None)
    assert state_of(cache) == before


# The queue


def queue() -> SchedulingQueue:
    made = SchedulingQueue(QueueSettings(initial_backoff=1.0, max_backoff=10.0))
    made.serve("default-scheduler", lambda pod, since: (since,), lambda pods: SUCCESS, {})
    return made


def waits_after(waiting: SchedulingQueue, now: float) -> float:
    """How long the unit that is in flight backs off when its decision took too long."""
    unit = waiting.pop(now)
    assert unit is not None
    waiting.requeue(unit, (), "late", now, error=True, backoff=waiting.overrun(unit))
    due = waiting.next_due(now)
    assert due is not None
    return due


def test_a_unit_backs_off_twice_as_long_each_time_that_its_decision_takes_too_long() -> None:
    cache, waiting, now = cluster(), queue(), 0.0
    waiting.add(cache.record(make_pod("p")), now)

    waits = []
    for _ in range(8):
        waits.append(waits_after(waiting, now))
        now += waits[-1]

    assert waits == [20.0, 40.0, 80.0, 160.0, 320.0, MAX_OVERRUN_BACKOFF, MAX_OVERRUN_BACKOFF, MAX_OVERRUN_BACKOFF]


def test_a_unit_that_changes_all_the_time_is_not_tried_all_the_time() -> None:
    cache, waiting, tries = cluster(), queue(), 0
    waiting.add(cache.record(make_pod("p")), 0.0)
    for second in range(1200):
        waiting.update(cache.record(make_pod("p", labels={"changed": str(second)})), float(second))
        unit = waiting.pop(float(second))
        if unit is not None:
            tries += 1
            waiting.requeue(unit, (), "late", float(second), error=True, backoff=waiting.overrun(unit))

    assert tries <= 12


def test_a_gang_that_loses_a_pod_and_gets_another_is_not_tried_all_the_time() -> None:
    cache, waiting, tries = cluster(), SchedulingQueue(QueueSettings(initial_backoff=1.0, max_backoff=10.0)), 0
    waiting.serve("default-scheduler", lambda pod, since: (since,), lambda pods: SUCCESS, {}, lambda pod: "gang")
    waiting.add(cache.record(make_pod("first")), 0.0)
    for second in range(1200):
        waiting.add(pod := cache.record(make_pod(f"p-{second}")), float(second))
        unit = waiting.pop(float(second))
        if unit is not None:
            tries += 1
            waiting.requeue(unit, (), "late", float(second), error=True, backoff=waiting.overrun(unit))
        waiting.remove(pod.uid)

    assert tries <= 12


def test_a_unit_that_changes_is_tried_as_if_it_had_never_taken_too_long() -> None:
    cache, waiting, now = cluster(), queue(), 0.0
    waiting.add(cache.record(make_pod("p")), now)
    for _ in range(3):
        now += waits_after(waiting, now)
    waits_after(waiting, now)

    waiting.update(cache.record(make_pod("p", labels={"changed": "yes"})), now)

    assert waiting.next_due(now) == pytest.approx(8.0)  # as after four rejections of any other kind
    assert waiting.pop(now + 7.9) is None
    assert waits_after(waiting, now + 9.0) == pytest.approx(20.0)


def test_an_entry_of_the_queue_that_was_overtaken_does_not_end_a_later_backoff() -> None:
    cache, waiting = cluster(), queue()
    waiting.add(cache.record(make_pod("p")), 0.0)
    waits_after(waiting, 0.0)  # due at 20
    waiting.update(cache.record(make_pod("p", labels={"changed": "yes"})), 0.0)  # due at 1
    for now in (1.0, 21.0):
        waits_after(waiting, now)  # due at 21, then at 61

    assert waiting.pop(60.0) is None
    assert waiting.pop(61.0) is not None


# All of it


class Endless:
    """A filter that works for the gang "late" until the deadline has passed, and lets everybody else pass."""

    name = "Endless"
    reasons = ()

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Does not come to an end by itself for the gang."""
        while pod.labels.get(GROUP) == "late":
            cycle.deadline.check()
        return codes(nodes.full(False))


class Looking:
    """A filter that notes how many seconds are left, and then does nothing for 20 ms, without CPU time."""

    name = "Looking"
    reasons = ()
    left: ClassVar[list[float]] = []

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Lets all nodes through."""
        self.left.append(cycle.deadline.left)
        time.sleep(0.02)
        return codes(nodes.full(False))


def test_every_pod_has_the_whole_time_and_little_more_however_long_pods_before_it_took() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a", cpu=8))
    cluster.create(PODS, *(make_pod(f"p{number}", cpu="10m", scheduler_name="gangs") for number in range(20)))
    Looking.left.clear()

    async def play() -> None:
        options = Options(seed=1, pod_deadline=2.0)
        async with cluster.scheduling(profile_with("Looking"), plugins=[Looking], options=options):
            await cluster.until(lambda: len(cluster.bound()) == 20)

    cluster.play(play)

    assert len(Looking.left) >= 20
    assert all(1.75 < left < 2.25 for left in Looking.left)  # CPU time is read once in a slice of 4 ms


def test_a_late_gang_is_told_so_and_counted_and_everybody_else_is_bound() -> None:
    story = GangCluster()
    story.add_gang("late", 2)
    story.add_gang("a", 2)

    async def play() -> float:
        options = Options(seed=1, gang_deadline=0.1)
        async with story.scheduling(
            profile_with("Endless"), SimulatedClient(story.server), plugins=[Endless], options=options
        ) as made:
            await story.until(lambda: len(story.bound("a")) == 2)
            await story.until(lambda: bool(story.notes("late-0")))
            return (
                made.metrics.registry.get_sample_value("gangline_decisions_past_deadline_total", {"profile": "gangs"})
                or 0.0
            )

    assert story.play(play) == 1.0

    message = "the decision took longer than 0.1 s of CPU time: it is tried again in 20 s"
    assert message in story.notes("late-0") and message in story.notes("late")
    assert not story.bound("late")
