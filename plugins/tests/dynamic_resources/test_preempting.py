"""Pods of lower priority go for the devices of their claims, where that frees the devices, and only there."""

from __future__ import annotations

import pytest

from gangline import model
from gangline.testing.deciding import Decision, Rejection

from .claim_cases import DRIVER
from .preempting_cases import Bench

UNHELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."


def test_the_pod_that_has_the_device_goes() -> None:
    bench = Bench(a=1, b=1)
    bench.holder("low", "a", [0])
    bench.holder("equal", "b", [0], priority=10)

    assert bench.preempt(bench.waiting()) == ("a", ["low"])


def test_a_pool_that_contradicts_itself_keeps_no_pod_from_the_devices_of_another() -> None:
    """The message names such a pool on the node that sees it, and nowhere else."""
    bench = Bench(a=1, b=1)
    bench.holder("equal", "a", [0], priority=10)
    bench.holder("other", "b", [0], priority=20)
    bench.contradict("a")

    rejected = bench.decide(bench.waiting())

    assert isinstance(rejected, Rejection)
    told = "0/2 nodes are available: 1 cannot allocate all claims, 1 invalid resource pools were encountered."
    assert rejected.message.startswith(told)
    assert bench.preempt(bench.waiting("higher", priority=11)) == ("a", ["equal"])


def test_no_more_pods_go_than_have_the_devices_that_are_missing() -> None:
    bench = Bench(a=4)
    for number in range(4):
        bench.holder(f"p{number}", "a", [number], priority=number)

    assert bench.preempt(bench.waiting(count=2)) == ("a", ["p0", "p1"])


def test_pods_that_share_a_claim_go_together() -> None:
    bench = Bench(a=1)
    bench.claim("shared", "a", [0], ["p0", "p1"])
    for number in range(2):
        bench.run(f"p{number}", "a", ["shared"])

    assert bench.preempt(bench.waiting()) == ("a", ["p0", "p1"])


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, ("a", ["other"])), (2, "preemption: 0/1 nodes are available: 1 cannot allocate all claims.")],
)
def test_who_shares_a_claim_with_a_pod_that_stays_is_not_evicted_in_vain(count: int, expected: object) -> None:
    bench = Bench(a=2)
    bench.claim("shared", "a", [0], ["low", "high"])
    bench.run("low", "a", ["shared"])
    bench.run("high", "a", ["shared"], priority=10)
    bench.holder("other", "a", [1], priority=5)

    assert bench.preempt(bench.waiting(count=count)) == expected


def test_who_shares_a_claim_with_a_pod_on_another_node_is_not_evicted_in_vain() -> None:
    bench = Bench(a=1, b=0)
    bench.claim("shared", "a", [0], ["here", "there"])
    bench.run("here", "a", ["shared"])
    bench.run("there", "b", ["shared"])

    assert bench.preempt(bench.waiting()) == (
        "preemption: 0/2 nodes are available: 1 Preemption is not helpful for scheduling, 1 cannot allocate all claims."
    )


def test_a_claim_whose_consumer_nobody_has_seen_frees_nothing() -> None:
    bench = Bench(a=1)
    bench.claim("shared", "a", [0], ["low", "unseen"])
    bench.run("low", "a", ["shared"])

    assert isinstance(bench.preempt(bench.waiting()), str)


def test_more_devices_than_the_node_has_are_nothing_that_a_removal_could_give() -> None:
    bench = Bench(a=2)
    bench.holder("low", "a", [0, 1])

    assert bench.preempt(bench.waiting(count=3)) == UNHELPFUL


def test_devices_that_no_selector_means_are_nothing_that_a_removal_could_give() -> None:
    bench = Bench(a=1)
    bench.holder("low", "a", [0])
    nothing = [model.DeviceSelector(model.CelDeviceSelector('device.driver == "other"'))]

    assert bench.preempt(bench.waiting(selectors=nothing)) == UNHELPFUL


def test_an_invalid_claim_is_nothing_that_a_removal_could_help() -> None:
    bench = Bench(a=1)
    bench.holder("low", "a", [0])

    decided = bench.decide(bench.waiting(allocation_mode="Some"))

    assert isinstance(decided, Rejection) and not decided.nominated_node_name
    assert not bench.handle.background.spawned


def test_a_claim_that_is_pinned_to_another_node_is_not_resolvable_here() -> None:
    bench = Bench(a=1)
    bench.claim("mine", "elsewhere", [0], ["high"])
    bench.run("high", "elsewhere", ["mine"])
    bench.holder("low", "a", [0])
    pod = bench.cache.record(bench.pod_with("new", ["mine"], priority=10))

    assert bench.preempt(pod) == UNHELPFUL


def test_nobody_goes_while_the_devices_of_a_victim_come_free() -> None:
    bench = Bench(a=1, b=1)
    victim = bench.holder("low", "a", [0])
    bench.holder("other", "b", [0])
    pod = bench.waiting()
    bench.nominate(pod, "a")
    bench.cache.remove_pod(victim.uid)

    assert bench.preempt(pod) == ("preemption: not eligible due to devices that come free on the nominated node.")

    bench.freed("low")
    decided = bench.decide(pod)
    assert isinstance(decided, Decision) and decided.node == "a"


def test_a_pod_that_is_nominated_nowhere_does_not_evict_for_devices_that_come_free_anyway() -> None:
    bench = Bench(a=2)
    gone = bench.holder("gone", "a", [0])
    bench.holder("low", "a", [1])
    bench.cache.remove_pod(gone.uid)

    assert bench.preempt(bench.waiting()) == NO_VICTIMS


def test_what_comes_free_for_a_nominated_pod_is_not_given_to_a_lower_one() -> None:
    bench = Bench(a=2)
    victim = bench.holder("victim", "a", [1])
    high = bench.waiting("high", count=2)
    bench.nominate(high, "a")
    bench.cache.remove_pod(victim.uid)  # one device is free, the other one is not yet

    decided = bench.decide(bench.waiting("low", priority=5))

    assert not isinstance(decided, Decision)
    assert "1 cannot allocate all claims" in decided.message


def test_what_is_left_beside_a_nominated_pod_is_given_to_others() -> None:
    bench = Bench(a=3)
    victim = bench.holder("victim", "a", [0, 1])
    high = bench.waiting("high", count=2)
    bench.nominate(high, "a")
    bench.cache.remove_pod(victim.uid)

    decided = bench.decide(bench.waiting("low", priority=5))

    assert isinstance(decided, Decision)


def test_a_pod_that_is_being_evicted_gives_its_devices_to_the_nominated_pod_alone() -> None:
    bench = Bench(a=2)
    bench.holder("victim", "a", [1])
    high = bench.waiting("high", count=2)
    assert bench.preempt(high) == ("a", ["victim"])
    bench.nominate(high, "a")

    decided = bench.decide(bench.waiting("low", priority=5))

    assert not isinstance(decided, Decision)


def test_a_terminating_victim_is_waited_for() -> None:
    bench = Bench(a=1, b=1)
    bench.holder("going", "a", [0], gone=True)
    bench.holder("low", "b", [0])
    pod = bench.waiting()
    bench.nominate(pod, "a")

    assert bench.preempt(pod) == ("preemption: not eligible due to devices that come free on the nominated node.")


@pytest.mark.parametrize(("priority", "device"), [(5, "d2"), (10, "d2"), (20, "d0")])
def test_others_are_given_devices_that_are_not_meant_for_the_nominated_pod(priority: int, device: str) -> None:
    bench = Bench(a=0)
    bench.offer("a", 3, models="xxy")
    victim = bench.holder("victim", "a", [1])
    only_x = [model.DeviceSelector(model.CelDeviceSelector(f'device.attributes["{DRIVER}"].model == "x"'))]
    high = bench.waiting("high", count=2, selectors=only_x)
    bench.nominate(high, "a")
    bench.cache.remove_pod(victim.uid)  # d1 comes free; d0 and d2 are free

    assert isinstance(bench.decide(bench.waiting("other", priority=priority)), Decision)

    allocation = bench.ledger.allocation("claim-other")
    assert allocation is not None
    assert [each.device for each in allocation.devices.results] == [device]


def test_a_nominated_pod_of_which_no_devices_are_in_sight_keeps_none_from_others() -> None:
    bench = Bench(a=2)
    high = bench.waiting("high", count=3)
    bench.nominate(high, "a")

    assert isinstance(bench.decide(bench.waiting("low", count=2, priority=5)), Decision)


def test_a_nominated_pod_is_rather_given_what_is_free_than_what_comes_free() -> None:
    bench = Bench(a=2)
    gone = bench.holder("gone", "a", [0])
    high = bench.waiting("high")
    bench.nominate(high, "a")
    bench.cache.remove_pod(gone.uid)

    assert not isinstance(bench.decide(bench.waiting("low", priority=5)), Decision)
