"""One decision: assumed and reserved, or nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gangline import CodeColumn, Diagnosis, NodeView, PodInfo, Reason, Status, codes, hookimpl, unschedulable, wait
from gangline.deciding.scheduling import Decision, Rejection, decide, give_back
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.status import Code
from gangline.testing import cluster, make_node, make_pod, make_runtime
from gangline_plugins.node_resources_fit import NodeResourcesFit

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def fresh_calls() -> None:
    CALLS.clear()


def reserving(name: str, reserve: Any = None, permit: Any = None) -> type[Any]:
    """A plugin that notes its calls and answers, or raises, what it is given."""

    def answering(what: str, answer: Any) -> Any:
        def call(self: Any, pod: PodInfo, node: str) -> Any:
            CALLS.append(f"{name} {what} {node}")
            if isinstance(answer, Exception):
                raise answer
            return answer

        return hookimpl(call)

    hooks = {what: answering(what, a) for what, a in (("reserve", reserve), ("permit", permit), ("unreserve", None))}
    return type(name, (), {"name": name, **hooks})


def decided(
    cache: Cache, *plugins: type[Any], pod: PodInfo | None = None, nominations: Mapping[str, Any] | None = None
) -> Decision | Rejection:
    record = pod or cache.record(make_pod("p", cpu=2))
    return decide(Unit([record], added=0.0), make_runtime(cache, *plugins), cache, nominations or {})


def requested(cache: Cache) -> list[int]:
    return cache.nodes.view().requested("cpu").tolist()


def test_a_decision_leaves_the_pod_assumed_and_reserved() -> None:
    cache = cluster([make_node("a", cpu=1), make_node("b")])

    outcome = decided(cache, NodeResourcesFit, reserving("One"), reserving("Two"))

    assert isinstance(outcome, Decision) and outcome.node == "b" and outcome.holds == {}
    assert cache.is_assumed("pod-default-p") and requested(cache) == [0, 2000]
    assert CALLS == ["One reserve b", "Two reserve b", "One permit b", "Two permit b"]


@pytest.mark.parametrize("answer", [unschedulable("no"), KeyError("x"), 7], ids=["rejects", "raises", "nonsense"])
@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_what_was_reserved_is_given_back_in_reverse_order(point: str, answer: Any) -> None:
    cache = cluster([make_node("a")])

    outcome = decided(cache, reserving("One"), reserving("Two", **{point: answer}), reserving("Three"))

    assert isinstance(outcome, Rejection)
    assert CALLS[-3:] == ["Three unreserve a", "Two unreserve a", "One unreserve a"]
    assert cache.assumed == 0 and requested(cache) == [0] and outcome.pod.node_name == ""
    assert outcome.is_error is not isinstance(answer, Status)


def test_a_rejection_names_its_plugin_so_that_its_events_count() -> None:
    outcome = decided(cluster([make_node("a")]), reserving("Full", reserve=unschedulable("quota used up")))

    assert isinstance(outcome, Rejection)
    assert (outcome.message, outcome.plugins) == ("quota used up", frozenset({"Full"}))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (KeyError("x"), "plugin Broken at permit: KeyError: 'x'"),
        (7, "plugin Broken at permit: must return Status or None, not 7"),
        (Status(Code.ERROR, ("disk on fire",)), "disk on fire"),
    ],
    ids=["raises", "nonsense", "error status"],
)
def test_a_fault_fails_this_unit_alone_and_is_tried_again_whatever_happens(answer: Any, message: str) -> None:
    cache = cluster([make_node("a")])

    outcome = decided(cache, reserving("Broken", permit=answer))

    assert isinstance(outcome, Rejection) and outcome.is_error and outcome.plugins == frozenset()
    assert outcome.message == message
    assert isinstance(decided(cache, reserving("Good")), Decision)


def test_a_plugin_that_fails_to_unreserve_keeps_nobody_else_from_it() -> None:
    class Stuck:
        name = "Stuck"

        @hookimpl
        def reserve(self) -> None:
            return None

        @hookimpl
        def unreserve(self) -> None:
            raise KeyError("x")

    cache = cluster([make_node("a")])
    outcome = decided(cache, reserving("One"), Stuck, reserving("No", permit=unschedulable("no")))

    assert isinstance(outcome, Rejection) and outcome.is_error
    assert outcome.message == "plugin Stuck at unreserve: KeyError: 'x'"
    assert CALLS[-1] == "One unreserve a" and cache.assumed == 0


def test_plugins_that_hold_the_pod_are_named_with_their_patience() -> None:
    outcome = decided(
        cluster([make_node("a")]),
        reserving("One", permit=wait(5)),
        reserving("Two", permit=wait(9)),
        reserving("Three"),
    )

    assert isinstance(outcome, Decision) and outcome.holds == {"One": 5, "Two": 9}


def test_a_pod_that_plugins_hold_waits_at_permit_until_its_decision_is_given_back() -> None:
    cache = cluster([make_node("a")])
    runtime = make_runtime(cache, reserving("One", permit=wait(5)))

    pod = cache.record(make_pod("p"))
    decision = decide(Unit([pod], added=0.0), runtime, cache, {})

    held = runtime.at_permit(pod)
    assert held is not None and held.node == "a" and held.holding == {"One"}
    assert isinstance(decision, Decision)
    give_back(runtime, cache, decision.cycle, pod, "a")
    assert runtime.at_permit(pod) is None and not len(runtime.handle.waiting)


def test_a_pod_that_fits_nowhere_is_rejected_with_what_plugins_say() -> None:
    class Helper:
        name = "Helper"

        @hookimpl
        def post_filter(self, diagnosis: Diagnosis) -> Status:
            assert diagnosis.counts() == {"Insufficient cpu": 1}
            return unschedulable("nothing to evict")

    outcome = decided(cluster([make_node("a", cpu=1)]), NodeResourcesFit, Helper)

    assert isinstance(outcome, Rejection) and not outcome.is_error
    assert outcome.message == "0/1 nodes are available: 1 Insufficient cpu. nothing to evict"
    assert outcome.plugins == {"NodeResourcesFit"}


@pytest.mark.parametrize(
    "plugins",
    [
        (NodeResourcesFit,),
        (reserving("Full", reserve=unschedulable("no lock")),),
        (reserving("Broken", reserve=OSError()),),
    ],
    ids=["no node and no plugin that helps", "rejected on its node", "a fault"],
)
def test_a_pod_that_cannot_be_placed_loses_its_nomination(plugins: tuple[type[Any], ...]) -> None:
    cache = cluster([make_node("a", cpu=1)])
    pod = make_pod("p", cpu=2)
    pod.status.nominated_node_name = "a"

    outcome = decided(cache, *plugins, pod=cache.record(pod))

    assert isinstance(outcome, Rejection) and outcome.nominated_node_name == ""


def test_a_plugin_that_makes_room_nominates_the_node() -> None:
    class Helper:
        name = "Helper"

        @hookimpl
        def post_filter(self) -> str:
            return "a"

    outcome = decided(cluster([make_node("a", cpu=1)]), NodeResourcesFit, Helper)

    assert isinstance(outcome, Rejection) and outcome.nominated_node_name == "a"


@pytest.mark.parametrize(
    ("priority", "name", "fits"),
    [(5, "other", False), (0, "other", False), (-1, "other", True), (5, "p", True)],
    ids=["higher", "equal", "lower", "itself"],
)
def test_room_made_for_a_pod_of_at_least_this_priority_is_taken(priority: int, name: str, fits: bool) -> None:
    cache = cluster([make_node("a", cpu=2)])
    waiting = cache.record(make_pod(name, cpu=2, priority=priority))

    outcome = decided(
        cache, NodeResourcesFit, nominations={"a": {waiting.uid: waiting}, "gone": {waiting.uid: waiting}}
    )

    assert isinstance(outcome, Decision) is fits
    assert requested(cache) == [2000 if fits else 0] and waiting.row == -1
    if not fits:
        assert outcome.message == "0/1 nodes are available: 1 Insufficient cpu."  # type: ignore[union-attr]  # a rejection


def test_a_pod_goes_where_room_was_made_for_it() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    pod = make_pod("p", cpu=2)
    pod.status.nominated_node_name = "b"

    outcome = decided(cache, NodeResourcesFit, pod=cache.record(pod))

    assert isinstance(outcome, Decision) and outcome.node == "b"


def test_a_node_must_fit_without_the_nominated_pods_too() -> None:
    class NextToOthers:
        """Only nodes that have pods."""

        name = "NextToOthers"
        reasons = (Reason("lonely"),)

        @hookimpl
        def filter(self, nodes: NodeView) -> CodeColumn:
            return codes(nodes.requested("pods") == 0)

    cache = cluster([make_node("a"), make_node("b")], [make_pod("there", node="b")])
    waiting = cache.record(make_pod("other", priority=9))

    outcome = decided(cache, NextToOthers, nominations={"a": {waiting.uid: waiting}})

    assert isinstance(outcome, Decision) and outcome.node == "b"


def test_pods_that_wait_for_room_on_full_nodes_cost_other_pods_nothing() -> None:
    class Placements:
        """Notes where pods are put."""

        def __init__(self) -> None:
            self.rows: list[int] = []

        def add(self, pod: PodInfo, row: int) -> None:
            self.rows.append(row)

        def remove(self, pod: PodInfo, row: int) -> None:
            pass

    nodes = [make_node("full", cpu=4), make_node("half", cpu=4), make_node("free", cpu=4)]
    cache = cluster(nodes, [make_pod("victim", cpu=4, node="full"), make_pod("there", cpu=2, node="half")])
    waiting = {node: cache.record(make_pod(f"for-{node}", cpu=2, priority=9)) for node in ("full", "half")}
    placements = cache.tracker(Placements)
    placements.rows.clear()

    outcome = decided(cache, NodeResourcesFit, nominations={node: {pod.uid: pod} for node, pod in waiting.items()})

    assert isinstance(outcome, Decision) and outcome.node == "free"
    assert placements.rows == [1, 2]


class Fails:
    """Rejects node a by a reason, and meets an error on node b."""

    name = "Fails"
    reasons = (Reason("node(s) were a"), Reason("no such key: only"))
    errors_from = 2

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        return codes(*(np.array([name == node for name in nodes.names]) for node in "ab"))


def test_an_error_on_a_node_that_earlier_filters_let_through_fails_the_pod_wherever_it_could_go() -> None:
    outcome = decided(cluster([make_node(name) for name in "abc"]), NodeResourcesFit, Fails)

    assert isinstance(outcome, Rejection) and outcome.is_error
    assert outcome.message == 'running "Fails" filter plugin: no such key: only'


def test_an_error_on_a_node_that_is_out_of_the_question_keeps_the_pod_from_no_other() -> None:
    outcome = decided(cluster([make_node("a"), make_node("b", cpu=1), make_node("c")]), NodeResourcesFit, Fails)

    assert isinstance(outcome, Decision) and outcome.node == "c"
