"""What plugins are told of: an attempt that begins, a pod that waits, a rejection, a node that a pod does not go to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gangline import (
    NODE,
    PODS,
    Action,
    CodeColumn,
    Cycle,
    DeadlineExceeded,
    Diagnosis,
    EventHint,
    Handle,
    NodeView,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    on,
    unschedulable,
)
from gangline.deciding.scheduling import Decision, Rejection, decide
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime


class Quota:
    """Lets so many pods in as there is room for by a number that is read before each attempt."""

    name = "Quota"
    reads = NODE | PODS
    reasons = (Reason("node(s) had no quota"),)
    room = 0

    def __init__(self, args: None, handle: Handle) -> None:
        self._state = handle.state
        self._known = 0

    @hookimpl
    def pre_cycle(self) -> None:
        if self._known != Quota.room:
            self._known = Quota.room
            self._state.touch(0)

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        return codes(nodes.full(self._known == 0))


class Concerned:
    """Rejects nothing, and knows what may help some pods."""

    name = "Concerned"
    told: list[str]

    def __init__(self) -> None:
        Concerned.told = []

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        return (on("configmaps", Action.UPDATE),)

    @hookimpl
    def pre_filter(self) -> None:
        return None

    @hookimpl
    def post_enqueue(self, pod: PodInfo) -> None:
        self.told.append(f"waits {pod.name}")
        if pod.name == "bad":
            raise ValueError("no")

    @hookimpl
    def post_reject(self, pod: PodInfo, diagnosis: Diagnosis) -> bool | None:
        self.told.append(f"rejected {pod.name}")
        return None if pod.name == "other" else True

    @hookimpl
    def unreserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        self.told.append(f"not on {node} {pod.name}")


class Refuses:
    name = "Refuses"

    @hookimpl
    def permit(self, pod: PodInfo) -> Status | None:
        return unschedulable("no") if pod.name == "refused" else None


@pytest.fixture
def cache() -> Cache:
    Quota.room = 0
    return cluster([make_node("a")])


def decided(cache: Cache, name: str, *plugins: type[object]) -> Decision | Rejection:
    runtime = make_runtime(cache, *plugins)
    return decide(Unit([cache.record(make_pod(name))], added=0.0), runtime, cache, {})


def test_what_is_noted_as_changed_before_a_cycle_counts_in_it(cache: Cache) -> None:
    runtime = make_runtime(cache, Quota)
    pod = cache.record(make_pod("p"))
    assert not runtime.filter(pod).feasible.any()

    Quota.room = 1

    assert runtime.filter(pod).feasible.all()


def test_a_plugin_that_a_rejection_concerns_is_one_of_its_reasons(cache: Cache) -> None:
    rejection, other = (decided(cache, name, Quota, Concerned) for name in ("p", "other"))

    assert isinstance(rejection, Rejection) and rejection.plugins == {"Quota", "Concerned"}
    assert isinstance(other, Rejection) and other.plugins == {"Quota"}
    assert rejection.message == other.message == "0/1 nodes are available: 1 node(s) had no quota."


def test_a_plugin_that_reserves_nothing_is_told_that_a_pod_does_not_go_to_its_node(cache: Cache) -> None:
    outcome = decided(cache, "refused", Concerned, Refuses)

    assert isinstance(outcome, Rejection) and Concerned.told == ["not on a refused"]


def test_a_plugin_that_raises_when_it_is_told_of_a_waiting_pod_harms_nobody(cache: Cache) -> None:
    handle = FakeHandle(cache)
    runtime = make_runtime(cache, Concerned, handle=handle)

    for name in ("bad", "good"):
        runtime.enqueued(cache.record(make_pod(name)))

    assert Concerned.told == ["waits bad", "waits good"]


class Odd:
    """Fails wherever it is told of something."""

    name = "Odd"

    @hookimpl
    def post_enqueue(self) -> None:
        raise DeadlineExceeded(0.1)

    @hookimpl
    def post_reject(self, pod: PodInfo) -> str:
        if pod.name == "late":
            raise DeadlineExceeded(0.1)
        return "yes"


def test_a_plugin_that_fails_when_it_is_told_of_a_rejection_is_none_of_its_reasons(cache: Cache) -> None:
    runtime = make_runtime(cache, Quota, Odd)
    for name in ("p", "late"):
        diagnosis = runtime.evaluator.diagnose(runtime.filter(cache.record(make_pod(name))))

        assert runtime.reject(diagnosis) == {"Quota"}
    assert runtime.failures.counts["Odd", "post_reject"] == 1  # a deadline is nobody's fault


def test_a_deadline_that_a_plugin_has_set_itself_is_no_matter_of_the_pod_that_waits(cache: Cache) -> None:
    make_runtime(cache, Odd).enqueued(cache.record(make_pod("p")))
