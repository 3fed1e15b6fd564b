"""What there is to tell is collected, counted and cut to what the API server takes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangline.model import Event, TypedReference
from gangline.profile import recording
from gangline.profile.recording import Condition, EventRecorder, Repeated
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.testing import FakeClock, make_pod


def pod(name: str = "p") -> PodInfo:
    return Cache().record(make_pod(name))


POD = pod()


def recorder() -> tuple[EventRecorder, FakeClock]:
    clock = FakeClock(1_700_000_000.0)
    return EventRecorder(clock, "host-1"), clock


def written(events: EventRecorder) -> Event:
    event = events.next_event()
    assert isinstance(event, Event)
    return event


def condition(uid: str, message: str) -> Condition:
    return Condition("default", uid, uid, "Unschedulable", message)


def test_an_event_says_what_happened_to_which_pod_when_and_who_says_so() -> None:
    events, _ = recorder()
    events.event(pod(), "Warning", "FailedScheduling", "no room")

    event = written(events)

    assert (event.type, event.reason, event.note, event.action) == (
        "Warning",
        "FailedScheduling",
        "no room",
        "Scheduling",
    )
    assert event.regarding is not None and event.regarding.uid == "pod-default-p"
    assert event.metadata.namespace == "default" and event.metadata.name.startswith("p.")
    assert event.event_time == "2023-11-14T22:13:20.000000Z" and event.series is None
    assert (event.reporting_controller, event.reporting_instance) == ("default-scheduler", "host-1")
    assert events.next_event() is None


def test_the_same_said_again_before_it_was_written_becomes_a_count() -> None:
    events, clock = recorder()
    for _ in range(3):
        events.event(pod(), "Warning", "FailedScheduling", "no room")
        clock.advance(1.0)

    event = written(events)

    assert event.series is not None and event.series.count == 3
    assert event.series.last_observed_time == "2023-11-14T22:13:22.000000Z"
    assert events.waiting == 0


def test_the_same_said_again_later_becomes_a_series_of_the_same_event() -> None:
    events, clock = recorder()
    events.event(pod(), "Warning", "FailedScheduling", "no room")
    name = written(events).metadata.name
    counts = []
    for _ in range(2):
        clock.advance(recording.SERIES_PAUSE)
        events.go_on_with_series()
        events.event(pod(), "Warning", "FailedScheduling", "no room")
        again = events.next_event()
        assert isinstance(again, Repeated) and again.event.metadata.name == name
        counts.append(again.event.series.count if again.event.series else 0)

    assert counts == [2, 3]


def test_new_events_are_handed_out_together_up_to_one_that_was_written_before() -> None:
    events, _ = recorder()
    events.event(pod(), "Warning", "FailedScheduling", "old")
    written(events)
    for note in ("one", "two", "old", "three"):
        events.event(pod(), "Warning", "FailedScheduling", note)

    assert [event.note for event in events.next_new_events(1)] == ["one"]
    assert [event.note for event in events.next_new_events(5)] == ["two"]
    assert events.next_new_events(5) == []
    assert isinstance(events.next_event(), Repeated)
    assert [event.note for event in events.next_new_events(5)] == ["three"]


def test_a_series_is_written_again_after_a_pause_with_all_repetitions() -> None:
    events, clock = recorder()
    woken = []
    events.event(pod(), "Warning", "FailedScheduling", "no room")
    written(events)
    events.event(pod(), "Warning", "FailedScheduling", "no room")
    assert isinstance(events.next_event(), Repeated)

    events.wakers.append(lambda: woken.append(True))
    for _ in range(100):
        clock.advance(1.0)
        events.event(pod(), "Warning", "FailedScheduling", "no room")
        events.go_on_with_series()
    assert events.next_event() is None and events.waiting == 0 and not woken and events.dropped == 0

    clock.advance(recording.SERIES_PAUSE - 100.0)
    events.go_on_with_series()
    again = events.next_event()

    assert woken and isinstance(again, Repeated)
    assert again.event.series is not None and again.event.series.count == 102
    assert again.event.series.last_observed_time == "2023-11-14T22:15:00.000000Z"


def test_a_series_that_has_not_grown_is_not_written_again() -> None:
    events, clock = recorder()
    for _ in range(2):
        events.event(pod(), "Warning", "FailedScheduling", "no room")
    written(events)

    clock.advance(recording.SERIES_PAUSE)
    events.go_on_with_series()

    assert events.next_event() is None and events.waiting == 0


def test_the_number_of_series_that_rest_is_bounded() -> None:
    events, _ = recorder()
    for i in range(recording.MOST_REMEMBERED + 1):
        for _ in range(2):
            events.event(POD, "Normal", "Moved", str(i))
        written(events)
        if i == 0:
            events.event(POD, "Normal", "Moved", "0")
            assert events.waiting == 0

    assert events.waiting == 1, "the oldest one no longer rests"


def test_another_note_or_pod_is_another_event_with_another_name() -> None:
    events, _ = recorder()
    for who, note in (("p", "no room"), ("p", "no gpu"), ("q", "no room")):
        events.event(pod(who), "Warning", "FailedScheduling", note)

    assert len({written(events).metadata.name for _ in range(3)}) == 3


@pytest.mark.parametrize("letter", ["x", "ü", "🛷"], ids=["one byte", "two bytes", "four bytes"])
def test_a_long_note_is_cut_to_1024_bytes(letter: str) -> None:
    events, _ = recorder()
    events.event(pod(), "Warning", "FailedScheduling", letter * 3000)

    note = written(events).note

    assert note.endswith("...") and 1020 <= len(note.encode()) <= 1024
    assert set(note.removesuffix("...")) == {letter}


def test_a_note_of_1024_bytes_stays_whole() -> None:
    events, _ = recorder()
    events.event(pod(), "Warning", "FailedScheduling", "x" * 1024)

    assert written(events).note == "x" * 1024


def test_an_event_of_a_pod_with_a_long_name_has_a_name_that_is_allowed() -> None:
    events, _ = recorder()
    events.event(pod("a" * 199 + "." + "b" * 53), "Normal", "Scheduled", "ok")

    name = written(events).metadata.name

    assert len(name) <= 253 and ".." not in name


def test_when_too_much_waits_the_newest_are_dropped_and_counted() -> None:
    events, _ = recorder()
    for i in range(recording.MOST_WAITING + 5):
        events.event(POD, "Normal", "Moved", str(i))

    assert events.dropped == 5 and events.waiting == recording.MOST_WAITING
    assert written(events).note == "0"


def test_what_was_written_long_ago_is_forgotten_and_told_anew() -> None:
    events, _ = recorder()
    events.event(POD, "Normal", "Moved", "first")
    written(events)
    for i in range(recording.MOST_REMEMBERED):
        events.event(POD, "Normal", "Moved", str(i))
        written(events)

    events.event(POD, "Normal", "Moved", "first")

    assert written(events).series is None


def test_of_several_conditions_of_a_pod_the_last_one_stands() -> None:
    events, _ = recorder()
    events.condition(condition("p", "first"))
    events.condition(condition("q", "other"))
    events.condition(condition("p", "last"))

    assert events.waiting == 2
    assert events.next_condition() == condition("p", "last")
    assert events.next_condition() == condition("q", "other")
    assert events.next_condition() is None


def test_the_condition_of_a_pod_that_is_bound_or_gone_is_of_no_interest() -> None:
    events, _ = recorder()
    events.condition(condition("p", "no room"))

    events.forget("p")
    events.forget("unknown")

    assert events.next_condition() is None


def test_an_object_of_the_cluster_is_spoken_of_in_the_default_namespace() -> None:
    events, _ = recorder()
    events.about(TypedReference(kind="Node", name="n"), "", "Warning", "InvalidNode", "bad", "Decoding")

    event = written(events)

    assert event.metadata.namespace == "default" and event.reporting_controller == "gangline"


def test_an_object_that_always_has_something_new_wrong_with_it_does_not_flood_the_api_server() -> None:
    events, clock = recorder()
    for n in range(1000):
        events.event(pod("odd"), "Warning", "InvalidPod", f"reason {n}")
        clock.advance(0.06)
    events.event(pod("other"), "Warning", "InvalidPod", "wrong")
    events.event(pod("odd"), "Normal", "Scheduled", "assigned")

    assert events.waiting <= recording.BURST + 60 / recording.PAUSE + 3
    assert events.dropped >= 900
    said = [written(events) for _ in range(events.waiting)]
    assert {event.regarding.name for event in said if event.regarding} == {"odd", "other"}
    assert said[-1].reason == "Scheduled"


def test_an_object_is_warned_about_again_after_a_while() -> None:
    events, clock = recorder()
    for n in range(100):
        events.event(pod("odd"), "Warning", "InvalidPod", f"reason {n}")
    while events.next_event() is not None:
        pass
    clock.advance(recording.PAUSE + 1)
    events.event(pod("odd"), "Warning", "InvalidPod", "another")

    assert written(events).note == "another"


def test_the_objects_that_were_warned_about_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_REMEMBERED", 10)
    events, _ = recorder()
    for n in range(100):
        events.event(pod(f"p-{n}"), "Warning", "InvalidPod", "wrong")

    assert len(events._warned) == 10


@pytest.mark.parametrize(
    ("first", "second", "written"),
    [("a", None, "a"), ("", None, ""), (None, None, None), ("a", "", ""), ("a", "b", "b"), (None, "b", "b")],
)
@pytest.mark.parametrize("failed", [False, True], ids=["waiting", "failed"])
def test_a_newer_condition_keeps_the_nomination_that_still_has_to_be_written(
    first: str | None, second: str | None, written: str | None, failed: bool
) -> None:
    events, _ = recorder()
    older = Condition("default", "p", "uid-p", "Unschedulable", "one", first)
    newer = Condition("default", "p", "uid-p", "Unschedulable", "two", second)
    events.condition(older)
    if failed:
        assert events.next_condition() == older
    events.condition(newer)
    if failed:
        events.restore(older)

    assert events.next_condition() == replace(newer, nominated_node_name=written)
    assert events.next_condition() is None
