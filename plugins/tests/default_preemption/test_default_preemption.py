"""Who may preempt whom, whom it costs, and what is said."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from gangline import Handle, PodInfo, Rows, Status
from gangline_plugins.default_preemption import Args
from gangline_plugins.default_preemption.importance import Candidate
from gangline_plugins.default_preemption.searching import find_best, number_wanted
from gangline_plugins.default_preemption.simulating import Simulation
from gangline_plugins.preemption.budgets import Budgets

from ..default_preemption_cases import Cluster, Object, budget, cluster, node, pod

A, B = node("a"), node("b")
DAY, NIGHT = {"app": "day"}, {"app": "night"}
DELETED = {"deletionTimestamp": "2024-01-01T00:00:00Z"}


def preempted(reason: str = "PreemptionByScheduler") -> Object:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


# The order in which candidates are preferred


def test_fewest_budget_violations_count_most() -> None:
    pods = [pod("protected", 4, 1, "a", labels=DAY), pod("free", 4, 9, "b")]

    assert cluster([A, B], pods, [budget(0, app="day")]).victims(pod("p", 4, 10)) == ("b", ["free"])


def test_then_the_lowest_priority_of_the_most_important_victim() -> None:
    pods = [pod("important", 4, 3, "a"), pod("x", 2, 2, "b"), pod("y", 2, 2, "b")]

    assert cluster([A, B], pods).victims(pod("p", 4, 10)) == ("b", ["x", "y"])


def test_then_the_smallest_sum_of_priorities() -> None:
    pods = [pod("v", 2, 3, "a"), pod("w", 2, 2, "a"), pod("x", 2, 3, "b"), pod("y", 2, 1, "b")]

    assert cluster([A, B], pods).victims(pod("p", 4, 10)) == ("b", ["x", "y"])


def test_one_victim_is_better_than_two_also_below_zero() -> None:
    pods = [pod("v", 2, -5, "a"), pod("w", 2, -5, "a"), pod("x", 4, -5, "b")]

    assert cluster([A, B], pods).victims(pod("p", 4, 10)) == ("b", ["x"])


def test_fewest_victims_count_where_sums_are_equal() -> None:
    lowest = -(2**31)  # adds nothing to the sum
    pods = [pod("v", 2, 1, "a"), pod("w", 2, lowest, "a"), pod("x", 4, 1, "b")]

    assert cluster([A, B], pods).victims(pod("p", 4, 10)) == ("b", ["x"])


def test_then_the_latest_start_of_the_most_important_victims() -> None:
    pods = [
        pod("v", 2, 2, "a", "10:00:00"),
        pod("w", 2, 1, "a", "23:00:00"),
        pod("x", 2, 2, "b", "11:00:00"),
        pod("y", 2, 1, "b", "09:00:00"),
    ]

    assert cluster([A, B], pods).victims(pod("p", 4, 10)) == ("b", ["x", "y"])


def test_a_pod_that_has_not_started_counts_as_starting_now() -> None:
    pods = [pod("old", 4, 1, "a", "10:00:00"), pod("new", 4, 1, "b")]

    assert cluster([A, B], pods).victims(pod("p", 4, 10)) == ("b", ["new"])


@pytest.mark.parametrize(("start", "first"), [(0, "a"), (1, "b")])
def test_then_the_node_that_was_looked_at_first(start: int, first: str) -> None:
    pods = [pod("x", 4, 1, "a"), pod("y", 4, 1, "b")]

    assert cluster([A, B], pods, start=start).victims(pod("p", 4, 10))[0] == first


# Victims on one node


def test_only_what_has_to_go_goes_and_the_more_important_stay() -> None:
    pods = [pod("low", 1, 1, "a"), pod("middle", 1, 2, "a"), pod("high", 2, 3, "a")]

    assert cluster([A], pods).victims(pod("p", 1, 10)) == ("a", ["low"])


def test_a_small_pod_stays_where_a_more_important_one_has_to_go() -> None:
    pods = [pod("small", 1, 1, "a"), pod("large", 3, 2, "a")]

    assert cluster([A], pods).victims(pod("p", 2, 10)) == ("a", ["large"])


def test_of_equals_the_one_that_has_run_longer_stays() -> None:
    pods = [pod("young", 2, 1, "a", "12:00:00"), pod("old", 2, 1, "a", "11:00:00")]

    assert cluster([A], pods).victims(pod("p", 2, 10)) == ("a", ["young"])


def test_equal_and_higher_priorities_are_left_alone() -> None:
    pods = [pod("equal", 1, 10, "a"), pod("higher", 1, 11, "a"), pod("lower", 2, 9, "a")]

    assert cluster([A], pods).victims(pod("p", 2, 10)) == ("a", ["lower"])


def test_what_a_budget_protects_stays_before_more_important_pods() -> None:
    pods = [pod("protected", 2, 1, "a", labels=DAY), pod("other", 2, 5, "a")]

    assert cluster([A], pods, [budget(0, app="day")]).victims(pod("p", 2, 10)) == ("a", ["other"])


def test_what_a_budget_allows_is_used_by_the_most_important_first() -> None:
    pods = [pod("high", 2, 2, "a", labels=DAY), pod("low", 2, 1, "a", labels=DAY)]

    # "high" uses up the one disruption, so "low" is protected and put back first
    assert cluster([A], pods, [budget(1, app="day")]).victims(pod("p", 2, 10)) == ("a", ["high"])


def test_a_pod_counted_as_disrupted_does_not_use_the_budget_up() -> None:
    pods = [pod("high", 2, 2, "a", labels=DAY), pod("low", 2, 1, "a", labels=DAY)]

    assert cluster([A], pods, [budget(1, ("high",), app="day")]).victims(pod("p", 2, 10)) == ("a", ["low"])


def test_violations_are_counted_per_victim() -> None:
    pods = [pod("x", 2, 1, "a", labels=DAY), pod("y", 2, 1, "a", labels=DAY), pod("z", 4, 1, "b", labels=NIGHT)]

    found = cluster([A, B], pods, [budget(0, app="day"), budget(0, app="night")]).decide(pod("p", 4, 10))

    assert isinstance(found, Candidate)
    assert (found.node, found.violations) == ("b", 1)


@pytest.mark.parametrize(
    "selector",
    [None, {}, {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["day"]}]}],
    ids=["absent", "empty", "invalid"],
)
def test_a_budget_without_a_usable_selector_protects_nothing(selector: Any) -> None:
    pdb = {**budget(0, app="x"), "spec": {"selector": selector}}
    pods = [pod("protected?", 2, 1, "a", labels=DAY), pod("other", 2, 5, "a")]

    assert cluster([A], pods, [pdb]).victims(pod("p", 2, 10)) == ("a", ["protected?"])


# Eligibility and words


def test_preemption_policy_never_is_refused() -> None:
    found = cluster([A], [pod("v", 4, 1, "a")])

    why = "preemption: not eligible due to preemptionPolicy=Never."
    assert found.refusal(pod("p", 4, 10, preemptionPolicy="Never")) == why


def test_a_pod_waits_for_the_victims_on_its_nominated_node() -> None:
    leaving = pod("leaving", 4, 1, "a", metadata=DELETED, status=preempted())
    found = cluster([A, B], [leaving, pod("v", 4, 1, "b")])

    status = found.preempt(pod("p", 4, 10, status={"nominatedNodeName": "a"}))

    assert isinstance(status, Status)
    assert status.message == "preemption: not eligible due to a terminating pod on the nominated node."
    assert status.code.value == "Unschedulable"


def test_a_nomination_that_is_not_yet_in_the_status_counts_too() -> None:
    found = cluster([A, B], [pod("leaving", 4, 1, "a", metadata=DELETED, status=preempted()), pod("v", 4, 1, "b")])
    waiting = found.pod(pod("p", 4, 10))
    found.fakes.fake_pending.nominations = {"a": {"p": waiting}}

    assert found.refusal(waiting) == "preemption: not eligible due to a terminating pod on the nominated node."


@pytest.mark.parametrize(
    "leaving",
    [
        pod("leaving", 4, 1, "a", metadata=DELETED),
        pod("leaving", 4, 1, "a", metadata=DELETED, status=preempted("EvictionByEvictionAPI")),
        pod("leaving", 4, 1, "a", status=preempted()),
        pod("leaving", 4, 10, "a", metadata=DELETED, status=preempted()),
    ],
    ids=["deleted by somebody", "evicted", "not deleted", "of equal priority"],
)
def test_other_pods_on_the_nominated_node_are_not_waited_for(leaving: Object) -> None:
    found = cluster([A, B], [leaving, pod("v", 4, 0, "b")])

    assert found.victims(pod("p", 4, 10, status={"nominatedNodeName": "a"})) == ("b", ["v"])


def test_a_nominated_node_that_is_of_no_use_any_more_is_not_waited_for() -> None:
    cordoned = {**node("a"), "spec": {"unschedulable": True}}
    leaving = pod("leaving", 4, 1, "a", metadata=DELETED, status=preempted())
    found = cluster([cordoned, B], [leaving, pod("v", 4, 1, "b")])

    assert found.victims(pod("p", 4, 10, status={"nominatedNodeName": "a"})) == ("b", ["v"])


def test_each_node_is_accounted_for_when_nothing_helps() -> None:
    cordoned = {**node("c"), "spec": {"unschedulable": True}}
    pods = [pod("equal", 4, 10, "a"), pod("equal-b", 3, 10, "b"), pod("lower", 1, 1, "b")]
    found = cluster([A, B, cordoned], pods)

    status = found.preempt(pod("p", 4, 10))

    assert isinstance(status, Status)
    assert status.message == (
        "preemption: 0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )
    assert status.code.value == "UnschedulableAndUnresolvable"


def test_the_words_follow_those_of_the_filters() -> None:
    found = cluster([A], [pod("equal", 4, 10, "a")])
    waiting = found.pod(pod("p", 4, 10))
    diagnosis = found.runtime.evaluator.diagnose(found.runtime.evaluator.filter(waiting))
    message = diagnosis.message()

    assert f"{message} {found.runtime.post_filter(diagnosis)[1]}" == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


# Candidates


@pytest.mark.parametrize(
    ("nodes", "percentage", "absolute", "wanted"),
    [(5000, 10, 100, 500), (500, 10, 100, 100), (50, 10, 100, 50), (50, 0, 1, 1), (0, 10, 100, 0)],
)
def test_how_many_candidates_are_enough(nodes: int, percentage: int, absolute: int, wanted: int) -> None:
    assert number_wanted(nodes, percentage, absolute) == wanted


def test_the_search_ends_with_enough_candidates() -> None:
    pods = [pod("dear", 4, 5, "a"), pod("cheap", 4, 1, "b")]
    args = Args(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=1)

    assert cluster([A, B], pods, args=args).victims(pod("p", 4, 10)) == ("a", ["dear"])


def test_the_search_goes_on_while_every_candidate_breaks_a_budget() -> None:
    pods = [pod("protected", 4, 1, "a", labels=DAY), pod("free", 4, 5, "b")]
    args = Args(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=1)

    assert cluster([A, B], pods, [budget(0, app="day")], args).victims(pod("p", 4, 10)) == ("b", ["free"])


def test_arguments_that_allow_no_candidate_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot both be 0"):
        cluster([], [], args=Args(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=0))


# Nominated pods


def test_room_made_for_another_pod_is_not_taken() -> None:
    pods = [pod("leaving", 4, 1, "a", metadata=DELETED), pod("v", 4, 5, "b")]
    found = cluster([A, B], pods)
    other = found.pod(pod("other", 4, 10))
    found.fakes.fake_pending.nominations = {"a": {"other": other}}

    assert found.victims(pod("p", 4, 10)) == ("b", ["v"])
    assert other.row == -1


def test_room_made_for_a_less_important_pod_is_taken() -> None:
    found = cluster([A], [pod("v", 4, 1, "a")])
    other = found.pod(pod("other", 4, 9))
    found.fakes.fake_pending.nominations = {"a": {"other": other}}

    assert found.victims(pod("p", 4, 10)) == ("a", ["v"])


# More than one node at a time


def anti_affinity(key: str, **labels: str) -> Object:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_evictions_on_one_node_do_not_count_for_another_in_its_zone() -> None:
    nodes = [node("a", zone="z"), node("b", zone="z"), node("c", zone="y")]
    pods = [pod("x", 1, 1, "a", labels=DAY), pod("y", 1, 1, "b", labels=DAY), pod("z", 1, 9, "c", labels=DAY)]

    found = cluster(nodes, pods).victims(pod("p", 1, 10, affinity=anti_affinity("zone", app="day")))

    assert found == ("c", ["z"])  # on "a" or "b" the pod on the other node is still in the way


def test_victims_that_keep_away_from_the_pod_are_looked_at_alone() -> None:
    nodes = [node("a", zone="z"), node("b", zone="z"), node("c", zone="y")]
    away = anti_affinity("zone", app="night")
    pods = [pod("x", 1, 1, "a", affinity=away), pod("y", 1, 1, "b", affinity=away), pod("z", 4, 9, "c")]

    assert cluster(nodes, pods).victims(pod("p", 1, 10, labels=NIGHT)) == ("c", ["z"])


def test_spread_is_judged_with_the_other_nodes_as_they_are() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": DAY},
    }
    pods = [pod("x", 2, 1, "a", labels=DAY), pod("y", 2, 1, "a", labels=DAY), pod("z", 4, 5, "b", labels=DAY)]
    found = cluster([A, B], pods)

    # on "a" one victim makes room, and 1 + 1 is one more than the 1 on "b"
    assert found.victims(pod("p", 2, 10, labels=DAY, topologySpreadConstraints=[constraint])) == ("a", ["y"])


class OneQuota:
    """A handle whose filters also hold the whole cluster to a number of pods."""

    def __init__(self, handle: Any, most: int) -> None:
        self._handle = handle
        self._most = most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def filter(self, pod: PodInfo, rows: Rows) -> Any:
        placed = sum(1 for other in self._handle.state.pods.values() if other.row >= 0)
        return self._handle.filter(pod, rows) & (placed < self._most)


def test_a_filter_that_looks_at_the_whole_cluster_is_noticed() -> None:
    pods = [pod(f"{where}{i}", 1, 1, where) for where in "ab" for i in range(3)]
    found = cluster([A, B], pods)
    preemptor = found.pod(pod("p", 1, 10))
    simulation = Simulation(cast(Handle, OneQuota(found.handle, 4)), preemptor, Budgets(()))

    best = find_best(simulation, preemptor, np.array([0, 1]), 2)

    assert best is not None
    assert len(best.victims) == 3  # in lock step two pods of each node would have seemed enough


# State and cost


def test_the_cluster_is_as_it_was_after_a_decision() -> None:
    nodes = [node(f"n{i}", zone=f"z{i % 2}") for i in range(6)]
    pods = [pod(f"p{i}", 1, i % 3, f"n{i % 6}", labels=DAY, port=80 + i) for i in range(20)]
    found = cluster(nodes, pods, [budget(1, app="day")])
    before = columns(found)

    found.victims(pod("p", 3, 10))
    found.victims(pod("q", 3, 10, affinity=anti_affinity("kubernetes.io/hostname", app="day")))
    found.refusal(pod("q", 3, 10, affinity=anti_affinity("zone", app="day")))
    found.refusal(pod("r", 4, 0))

    assert columns(found) == before


def columns(found: Cluster) -> list[Any]:
    nodes = found.cache.nodes
    rows = {uid: p.row for uid, p in found.cache.pods.items()}
    placed = [set(pods) for pods in nodes.pods_on]
    levels = {level: counts.tolist() for level, counts in found.plugin._levels._counts.items()}
    return [nodes.requested.tolist(), nodes.nonzero.tolist(), rows, placed, levels]


def full(nodes: int) -> Cluster:
    pods = [pod(f"n{i}-{j}", 2, 5, f"n{i}") for i in range(nodes) for j in range(2)]
    return cluster([node(f"n{i}") for i in range(nodes)], pods)


def test_five_hundred_full_nodes_of_the_same_priority_are_not_tried_out() -> None:
    found = full(500)
    waiting = found.pod(pod("p", 2, 5))
    diagnosis = found.runtime.evaluator.diagnose(found.runtime.evaluator.filter(waiting))
    before = found.cache.nodes.changes.position

    status = found.plugin.decide(waiting, diagnosis.nodes, diagnosis)

    assert isinstance(status, Status)
    assert "500 No preemption victims found" in status.message
    assert found.cache.nodes.changes.position == before  # no pod was taken off, not even on trial


def test_profiles_share_the_counters() -> None:
    found = cluster([A], [pod("v", 4, 1, "a")])
    other = type(found.plugin)(Args(), found.runtime.handle)
    other.post_filter(*arguments(found))
    found.plugin.post_filter(*arguments(found))

    registry = found.fakes.fake_metrics.registry
    assert registry.get_sample_value("scheduler_preemption_attempts_total") == 2.0
    assert registry.get_sample_value("scheduler_preemption_victims_total") == 2.0


def arguments(found: Cluster) -> tuple[Any, Any, Any]:
    waiting = found.pod(pod("p", 4, 10))
    diagnosis = found.runtime.evaluator.diagnose(found.runtime.evaluator.filter(waiting))
    return waiting, diagnosis.nodes, diagnosis
