"""Gangs that a plugin holds before they are queued: an event of that plugin wakes them."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import hookimpl, unschedulable
from gangline.api.hints import Action, ClusterEvent, on
from gangline.queueing.moving import FAULT_RETRY
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Place
from gangline.state.pods import PodInfo
from gangline.status import Status
from gangline.testing import SCHEDULER, cluster, make_node
from gangline.testing.gangs import Gangs

SIZE = 3
KEY = Action.ADD


class Holds:
    """Holds every pod until its key is there, and fails while it is broken."""

    name = "Holds"
    has_key = False
    is_broken = False

    def __init__(self, handle: Any) -> None:
        pass

    @hookimpl
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if Holds.is_broken:
            raise OSError("broken")
        return None if Holds.has_key else unschedulable("no key")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> SchedulingQueue:
    """A queue with a gang that is held."""
    monkeypatch.setattr(Holds, "has_key", False)
    gangs = Gangs(cluster([make_node("n", gpus=8)]), Holds)
    queue = SchedulingQueue()
    events = {"Holds": (on("keys", KEY),), "PodGroups": (on("nodes", Action.ADD),)}
    queue.serve(SCHEDULER, lambda pod, since: (since,), gangs.runtime.admit, events, gangs.runtime.group_key)
    for pod in gangs.gang("a", SIZE):
        queue.add(pod, 0.0)
    (unit,) = queue
    assert (unit.place, len(unit.members)) == (Place.GATED, SIZE)
    return queue


def test_an_event_of_the_plugin_that_holds_the_members_wakes_the_gang(held: SchedulingQueue) -> None:
    Holds.has_key = True

    assert held.happened(ClusterEvent("keys", KEY), None, None, 1.0) == 1
    assert held.pop(1.0) is not None


def test_events_of_others_do_not(held: SchedulingQueue) -> None:
    Holds.has_key = True

    assert held.happened(ClusterEvent("locks", KEY), None, None, 1.0) == 0
    assert held.pop(1.0) is None


def test_a_gang_that_is_held_by_a_fault_is_asked_about_again(
    held: SchedulingQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Holds, "is_broken", True)
    held.happened(ClusterEvent("keys", KEY), None, None, 1.0)
    Holds.is_broken, Holds.has_key = False, True

    assert held.pop(FAULT_RETRY) is None
    assert held.pop(1.0 + FAULT_RETRY) is not None
