"""Pods held at permit."""

from __future__ import annotations

from gangline.queueing.waiting import PodAtPermit, WaitingPods
from gangline.state.cache import Cache
from gangline.status import SUCCESS, Status
from gangline.testing import make_pod

POD = Cache().record(make_pod("p"))


def test_a_pod_goes_on_when_the_last_plugin_lets_go() -> None:
    waiting = PodAtPermit(POD, "a", {"One", "Two"})

    waiting.allow("One")
    assert waiting.holding == {"Two"}
    waiting.allow("Two")

    assert waiting.verdict is SUCCESS and (waiting.pod, waiting.node) == (POD, "a")


def test_one_rejection_ends_it_and_nothing_later_counts() -> None:
    waiting = PodAtPermit(POD, "a", {"One", "Two"})

    waiting.reject("One", "too late")
    waiting.reject("Two", "me too")
    waiting.allow("One")
    waiting.allow("Two")

    status = waiting.verdict
    assert status is not None and (status.message, status.plugin, status.is_rejected) == ("too late", "One", True)


def test_held_pods_are_found_by_uid() -> None:
    pods, waiting = WaitingPods(), PodAtPermit(POD, "a", {"One"})
    pods.add(waiting)

    assert pods.get(POD.uid) is waiting and list(pods) == [waiting] and len(pods) == 1
    pods.remove(POD.uid)
    pods.remove(POD.uid)
    assert pods.get(POD.uid) is None and len(pods) == 0


def test_held_pods_are_found_by_who_holds_them_until_that_lets_go() -> None:
    pods, waiting = WaitingPods(), PodAtPermit(POD, "a", {"One", "Two"})
    pods.add(waiting)

    waiting.allow("One")

    assert pods.held_by("One") == [] and pods.held_by("Two") == [waiting] and pods.held_by("Three") == []
    pods.remove(POD.uid)
    assert pods.held_by("Two") == []


def test_who_waits_for_the_end_is_told_of_it_even_if_it_has_come() -> None:
    waiting = PodAtPermit(POD, "a", {"One"})
    told: list[Status] = []

    waiting.allow("One")
    waiting.on_verdict(told.append)

    assert told == [SUCCESS]
