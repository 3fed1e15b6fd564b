"""Which events any plugin has registered, after any change of the profiles."""

from __future__ import annotations

from gangline.api.hints import Action, ClusterEvent, on
from gangline.queueing import wanting
from gangline.queueing.wanting import Wanting

ADDED = ClusterEvent("nodes", Action.ADD)


def test_whether_an_event_is_registered_follows_the_profiles() -> None:
    waits = Wanting()
    waits.serve("one", {"Fit": [on("pods", Action.DELETE)]})
    assert not waits.is_registered(ADDED)

    waits.serve("two", {"Fit": [on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL)]})
    assert waits.is_registered(ADDED)

    waits.serve_only({"one"})
    assert not waits.is_registered(ADDED)

    waits.serve("one", {"Fit": None})
    assert waits.is_registered(ADDED)


def test_events_of_any_name_take_a_bounded_amount_of_memory() -> None:
    waits = Wanting()
    waits.serve("one", {"Fit": [on("nodes", Action.ADD)]})
    for number in range(3 * wanting._MOST_EVENTS):
        assert not waits.is_registered(ClusterEvent(f"example.com/{number}", Action.ADD))

    assert waits.is_registered(ADDED) and len(waits._is_registered) <= wanting._MOST_EVENTS


def test_the_hints_that_an_event_concerns_follow_the_profiles_and_take_a_bounded_amount_of_memory() -> None:
    waits, rejecters = Wanting(), ("one", frozenset({"Fit"}))
    waits.serve("one", {"Fit": [on("nodes", Action.ADD)]})
    assert len(waits._hints_for(rejecters, ADDED)) == 1

    waits.serve("one", {"Fit": [on("pods", Action.DELETE)]})
    assert not waits._hints_for(rejecters, ADDED)

    waits.serve("one", {"Fit": None})
    assert len(waits._hints_for(rejecters, ADDED)) == 1
    for number in range(3 * wanting._MOST_EVENTS):
        waits._hints_for(rejecters, ClusterEvent(f"example.com/{number}", Action.ADD))
    assert len(waits._matching) <= wanting._MOST_EVENTS
