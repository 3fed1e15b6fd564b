"""PrioritySort and SchedulingGates."""

from __future__ import annotations

from gangline import model
from gangline.testing import cluster, make_pod, make_runtime
from gangline_plugins.priority_sort import PrioritySort
from gangline_plugins.scheduling_gates import SchedulingGates

CACHE = cluster()


def test_higher_priority_comes_first_and_the_older_among_equals() -> None:
    runtime = make_runtime(CACHE, PrioritySort)
    pods = [("low", -1, 1.0), ("none", None, 2.0), ("late", 5, 9.0), ("early", 5, 3.0)]

    order = sorted(pods, key=lambda p: runtime.sort_key(CACHE.record(make_pod(p[0], priority=p[1])), p[2]))

    assert [name for name, _, _ in order] == ["early", "late", "none", "low"]


def test_a_pod_with_gates_is_held_and_they_are_named() -> None:
    runtime = make_runtime(CACHE, SchedulingGates)
    gated = make_pod("p", scheduling_gates=[model.LocalName("quota"), model.LocalName("image")])

    status = runtime.pre_enqueue(CACHE.record(gated))

    assert status.is_rejected and status.plugin == "SchedulingGates"
    assert status.message == "waiting for scheduling gates: [quota image]"
    assert runtime.pre_enqueue(CACHE.record(make_pod("q"))).is_success
