"""Who has to go for a gang, and who never does."""

from __future__ import annotations

import pytest

from gangline import model, resources
from gangline.testing import make_pod
from gangline.testing.deciding import GroupDecision, GroupRejection

from .preemption_cases import ONE_LEAF, Bench, at, leaf


def test_a_gang_goes_as_a_whole() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", [*leaf(0), "l1-n0"])
    bench.run("solo", "l1-n1", priority=20)

    victims = bench.preempt(bench.members("new", 2))

    assert victims == ["a-0", "a-1", "a-2"]


def test_nobody_goes_when_the_gang_would_not_fit_all_the_same() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", ["l0-n0", "l1-n0"])
    bench.gang("b", ["l0-n1", "l1-n1"], priority=10)

    said = bench.refusal(bench.members("new", 2))

    assert "would not fit if all pods of lower priority that may be removed were gone" in said


def test_the_members_get_the_nodes_of_the_victims() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", leaf(0), priority=20)
    bench.gang("b", leaf(1))

    decided = bench.decide(bench.members("new", 2))

    assert isinstance(decided, GroupRejection)
    assert decided.nominated == {"pod-default-new-0": "l1-n0", "pod-default-new-1": "l1-n1"}
    assert len(bench.handle.background.spawned) == 1


def test_members_that_a_gang_can_spare_go_before_others() -> None:
    bench = Bench(leaves=1, nodes=4)
    bench.gang("elastic", leaf(0, 3), min_member=1, priority=5)
    bench.run("solo", "l0-n3", priority=0)

    victims = bench.preempt(bench.members("new", 2))

    assert victims == ["elastic-1", "elastic-2"]


def test_the_youngest_of_the_members_that_can_be_spared_goes_first() -> None:
    bench = Bench(leaves=1, nodes=2)
    bench.gang("elastic", leaf(0), min_member=1)
    bench.run("elastic-0", "l0-n0", age=60, labels={"scheduling.x-k8s.io/pod-group": "elastic"})

    assert bench.preempt(bench.members("new", 1)) == ["elastic-0"]


def test_a_gang_that_cannot_spare_enough_goes_with_all_its_members() -> None:
    bench = Bench(leaves=1, nodes=3)
    bench.gang("elastic", leaf(0, 3), min_member=2)

    victims = bench.preempt(bench.members("new", 2))

    assert victims == ["elastic-0", "elastic-1", "elastic-2"]


def test_a_gang_that_is_disrupted_as_one_spares_nobody() -> None:
    bench = Bench(leaves=1, nodes=2)
    bench.upstream_gang("one", leaf(0), disruption_mode="PodGroup")

    assert bench.preempt(bench.members("new", 1)) == ["one-0", "one-1"]


@pytest.mark.parametrize("priority", [10, 11], ids=["equal", "higher"])
def test_only_lower_priorities_go(priority: int) -> None:
    bench = Bench(leaves=1)
    bench.gang("a", leaf(0), priority=priority)

    assert bench.refusal(bench.members("new", 2)) == "preemption: no pods of lower priority that may be removed."


def test_the_priority_that_a_group_says_counts_for_its_members() -> None:
    bench = Bench(leaves=1, nodes=1)
    bench.upstream_gang("one", ["l0-n0"], priority=50)

    assert "no pods of lower priority" in bench.refusal(bench.members("new", 1))


def test_the_lowest_priority_goes_first() -> None:
    bench = Bench(leaves=3)
    for number, priority in enumerate((3, 1, 2)):
        bench.gang(f"p{priority}", leaf(number), priority=priority)

    assert bench.preempt(bench.members("new", 2)) == ["p1-0", "p1-1"]


def test_one_gang_goes_rather_than_two() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", ["l0-n0"])
    bench.gang("b", ["l0-n1"])
    bench.gang("c", leaf(1))

    assert bench.preempt(bench.members("new", 2)) == ["c-0", "c-1"]


def test_the_smallest_gang_that_is_enough_goes() -> None:
    bench = Bench(leaves=1, nodes=4)
    bench.gang("large", leaf(0, 3))
    bench.gang("small", ["l0-n3"])

    assert bench.preempt(bench.members("new", 1)) == ["small-0"]


def test_of_equals_that_which_started_last_goes() -> None:
    bench = Bench(leaves=3)
    for number, age in enumerate((3600.0, 60.0, 600.0)):
        bench.gang(f"g{number}", leaf(number), age=age)

    assert bench.preempt(bench.members("new", 2)) == ["g1-0", "g1-1"]


def test_single_pods_go_from_as_few_nodes_as_are_needed() -> None:
    bench = Bench(leaves=1, nodes=3)
    for node in leaf(0, 3):
        for n in range(8):
            bench.run(f"{node}-{n}", node, gpus=1)

    victims = bench.preempt(bench.members("new", 1))

    assert len(victims) == 8 and len({name[:5] for name in victims}) == 1


def test_a_gang_that_may_not_preempt_does_not() -> None:
    bench = Bench(leaves=1)
    bench.gang("a", leaf(0))

    said = bench.refusal(bench.members("new", 2, preemption_policy="Never"))

    assert said == "preemption: not eligible due to preemptionPolicy=Never."


def test_pods_beyond_what_a_running_gang_needs_preempt_nobody() -> None:
    bench = Bench(leaves=1)
    bench.gang("a", ["l0-n1"])
    bench.gang("new", ["l0-n0"], priority=10, annotations=ONE_LEAF)
    late = bench.members("new", 2, min_member=1)[1:]

    decided = bench.decide(late)

    assert isinstance(decided, GroupRejection)
    assert not bench.plans and not bench.handle.background.spawned


def test_nodes_that_removing_pods_does_not_open_are_left_alone() -> None:
    bench = Bench(2, 2, {"l0-n0": "broken:NoSchedule"})
    bench.gang("a", leaf(0))
    bench.gang("b", leaf(1), priority=5)

    assert bench.preempt(bench.members("new", 2)) == ["b-0", "b-1"]


def test_room_that_is_held_for_others_is_not_counted() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", leaf(0))
    bench.gang("b", leaf(1), priority=5)
    guest = bench.members("guest", 1, priority=30)[0]
    bench.handle.fake_pending.nominations = {"l0-n0": {guest.uid: guest}}

    assert bench.preempt(bench.members("new", 2)) == ["b-0", "b-1"]


# Minimum runtime


def test_a_gang_is_spared_until_it_has_run_as_long_as_promised() -> None:
    bench = Bench(leaves=2)
    bench.gang("young", leaf(0), age=60, annotations={"gangline.dev/min-runtime": "30m"})
    bench.gang("old", leaf(1), priority=5, age=1801, annotations={"gangline.dev/min-runtime": "30m"})

    assert bench.preempt(bench.members("new", 2)) == ["old-0", "old-1"]


def test_one_young_member_spares_its_gang() -> None:
    bench = Bench(leaves=1)
    bench.gang("a", leaf(0), annotations={"gangline.dev/min-runtime": "10m"})
    labels = {"scheduling.x-k8s.io/pod-group": "a"}
    bench.run("a-1", "l0-n1", age=30, labels=labels, annotations={"gangline.dev/min-runtime": "10m"})

    assert "would not fit" in bench.refusal(bench.members("new", 1))


def test_a_minimum_runtime_that_cannot_be_read_is_told_and_spares_nobody() -> None:
    bench = Bench(leaves=1)
    bench.gang("a", leaf(0), annotations={"gangline.dev/min-runtime": "soon"})

    assert bench.preempt(bench.members("new", 2)) == ["a-0", "a-1"]
    assert "annotation gangline.dev/min-runtime" in bench.handle.fake_recorder.events[0].note


def test_a_minimum_runtime_spares_nobody_whose_namespace_does_not_allow_it() -> None:
    bench = Bench(leaves=1)
    bench.allow("max-runtime, scheduling-map")
    bench.gang("a", leaf(0), age=60, annotations={"gangline.dev/min-runtime": "30m"})

    assert bench.preempt(bench.members("new", 2)) == ["a-0", "a-1"]
    assert bench.preempt(bench.members("other", 2)) == ["a-0", "a-1"]
    assert [event.reason for event in bench.handle.fake_recorder.events] == ["MinRuntimeNotAllowed"] * 2, "once a pod"


@pytest.mark.parametrize("text", ["99999999h", "9" * 63 + "h", "2h"])
def test_no_minimum_runtime_spares_for_longer_than_the_profile_lets_it(text: str) -> None:
    bench = Bench(leaves=2)
    bench.gang("young", leaf(0), age=3599, annotations={"gangline.dev/min-runtime": text})
    bench.gang("old", leaf(1), priority=5, age=3601, annotations={"gangline.dev/min-runtime": text})

    assert bench.preempt(bench.members("new", 2)) == ["old-0", "old-1"]
    assert {event.reason for event in bench.handle.fake_recorder.events} == {"MinRuntimeCut"}


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00Z", "soon", "9" * 5000])
def test_a_pod_whose_start_is_no_time_is_not_spared(start: str) -> None:
    bench = Bench(leaves=1)
    for node in leaf(0):
        pod = make_pod(f"a-{node}", 8, cpu=1, node=node, annotations={"gangline.dev/min-runtime": "30m"})
        pod.status.start_time = start
        bench.cache.upsert_pod(bench.cache.record(pod))

    assert bench.preempt(bench.members("new", 2)) == ["a-l0-n0", "a-l0-n1"]


def test_what_a_stranger_with_the_same_owner_says_spares_nobody_else() -> None:
    bench = Bench(leaves=2)
    job = model.OwnerReference("Job", "train", "the-uid", "batch/v1", controller=True)
    meta = model.ObjectMeta("train", "default", "the-uid", annotations={"gangline.dev/min-runtime": "30m"})
    bench.cache.store(resources.JOBS).upsert(model.Job(metadata=meta))
    for node, namespace in zip((*leaf(0), *leaf(1)), ("thief", "thief", "default", "default"), strict=True):
        pod = make_pod(f"a-{node}", 8, cpu=1, node=node, namespace=namespace)
        pod.metadata.owner_references = [job]
        pod.status.start_time = at(60)
        bench.cache.upsert_pod(bench.cache.record(pod))

    assert bench.preempt(bench.members("new", 2)) == ["a-l0-n0", "a-l0-n1"]


# Disruption budgets


def test_a_gang_without_a_budget_goes_before_a_less_important_one_that_has_one() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", leaf(0), priority=1)
    bench.gang("b", leaf(1), priority=5)
    bench.protect("pdb", 0, **{"scheduling.x-k8s.io/pod-group": "a"})

    assert bench.preempt(bench.members("new", 2)) == ["b-0", "b-1"]


def test_a_budget_is_broken_when_nothing_else_helps() -> None:
    bench = Bench(leaves=1)
    bench.gang("a", leaf(0))
    bench.protect("pdb", 1, **{"scheduling.x-k8s.io/pod-group": "a"})

    assert bench.preempt(bench.members("new", 2)) == ["a-0", "a-1"]


def test_a_budget_allows_as_many_disruptions_as_it_says() -> None:
    bench = Bench(leaves=2)
    for node in leaf(0):
        bench.run(f"web-{node}", node, labels={"app": "web"})
    bench.gang("b", leaf(1), priority=5)
    bench.protect("pdb", 2, app="web")

    assert bench.preempt(bench.members("new", 2)) == ["web-l0-n0", "web-l0-n1"]
    bench.protect("pdb", 1, app="web")
    assert bench.preempt(bench.members("other", 2)) == ["b-0", "b-1"]


# While victims go


def test_pods_that_are_being_deleted_count_as_gone() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", leaf(0), gone=True)
    bench.gang("b", leaf(1))

    assert bench.preempt(bench.members("new", 2)) == []


def test_the_rest_of_a_gang_that_lost_members_goes_first() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", leaf(0), priority=5)
    bench.run("a-0", "l0-n0", 5, gone=True, labels={"scheduling.x-k8s.io/pod-group": "a"})
    bench.gang("b", leaf(1), priority=0)

    assert bench.preempt(bench.members("new", 2)) == ["a-1"]


def test_a_gang_is_not_helped_twice_at_a_time() -> None:
    bench = Bench(leaves=1)
    bench.gang("a", leaf(0))
    pods = bench.members("new", 2)
    bench.preempt(pods)
    bench.handle.background.spawned.clear()

    assert bench.refusal(pods) == "preemption: waiting for the preemption for this gang to be finished"
    bench.remove(["a-0", "a-1"])
    assert isinstance(bench.decide(pods), GroupDecision)
