"""Units that time alone wakes."""

from __future__ import annotations

from gangline import SUCCESS, Action, ClusterEvent, on
from gangline.queueing.backing_off import QueueSettings
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Place, Unit
from gangline.queueing.void_entries import FEWEST
from gangline.queueing.waking import Waking
from gangline.state.cache import Cache
from gangline.testing import SCHEDULER, make_pod

POD = Cache().record(make_pod("p"))
"""The pod of all units; nobody changes it."""


def a_unit(place: Place, due: float = 0.0) -> Unit:
    return Unit([POD], added=0.0, place=place, due=due)


def test_a_unit_is_taken_when_its_backoff_has_ended() -> None:
    waking, unit = Waking(), a_unit(Place.BACKOFF, due=5.0)
    waking.back_off(unit)

    assert list(waking.backed_off(4.9)) == [] and waking.times() == [5.0]
    assert list(waking.backed_off(5.0)) == [unit] and waking.times() == []


def test_an_entry_is_void_when_the_unit_is_due_at_another_time_or_has_moved_on() -> None:
    waking, unit = Waking(), a_unit(Place.BACKOFF, due=9.0)
    waking.back_off(unit)
    unit.due = 3.0
    waking.back_off(unit)

    assert list(waking.backed_off(3.0)) == [unit]
    unit.move(Place.ACTIVE, 3.0)
    assert list(waking.backed_off(20.0)) == [] and waking.times() == []


def test_a_unit_to_look_at_is_taken_once_at_its_last_time() -> None:
    waking, unit = Waking(), a_unit(Place.GATED)
    waking.look_at(unit, 7.0)
    waking.look_at(unit, 4.0)

    assert waking.times() == [4.0]
    assert list(waking.to_look_at(4.0)) == [unit]
    assert list(waking.to_look_at(20.0)) == []


def test_units_that_are_gone_are_dropped_though_nobody_takes_any() -> None:
    waking, backs_off, held = Waking(), a_unit(Place.BACKOFF, due=9.0), a_unit(Place.GATED)
    waking.back_off(backs_off)
    waking.look_at(held, 8.0)
    for n in range(2 * FEWEST):
        gone = a_unit(Place.BACKOFF, due=float(n))
        waking.back_off(gone)
        waking.look_at(gone, float(n))
        gone.move(Place.GONE, 0.0)

    assert len(waking.backing_off()) <= FEWEST + 1
    assert list(waking.backed_off(9.0)) == [backs_off]
    assert [unit for unit in waking.to_look_at(8.0) if unit.place is not Place.GONE] == [held]


def test_a_time_to_look_at_a_unit_does_not_end_its_backoff() -> None:
    waking, unit = Waking(), a_unit(Place.BACKOFF, due=9.0)
    waking.look_at(unit, 4.0)
    waking.back_off(unit)

    assert list(waking.backed_off(5.0)) == []
    assert list(waking.to_look_at(5.0)) == [unit] and unit.place is Place.BACKOFF


def test_a_unit_that_backs_off_is_not_tried_early_when_the_time_to_look_at_it_comes() -> None:
    queue = SchedulingQueue(QueueSettings(initial_backoff=10.0))
    queue.serve(SCHEDULER, lambda pod, since: (since,), lambda pods: SUCCESS, {"Fit": (on("nodes", Action.ADD),)})
    queue.add(Cache().record(make_pod("p")), 0.0)
    unit = queue.pop(0.0)
    assert unit is not None
    queue.requeue(unit, ["Fit"], "no", 0.0, retry_after=5.0)
    queue.happened(ClusterEvent("nodes", Action.ADD), None, None, 1.0)
    assert unit.place is Place.BACKOFF

    assert queue.pop(6.0) is None
    assert queue.pop(10.0) is unit
