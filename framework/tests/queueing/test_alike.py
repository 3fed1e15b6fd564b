"""Units of one kind are woken one by one: as many as there is room for, in the order of the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gangline import SUCCESS, Action, ClusterEvent, PodInfo, on
from gangline.queueing.moving import COUNTS_AT_ONCE, COUNTS_PER_SECOND
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.testing import SCHEDULER, make_pod

CACHE = Cache()
ADDED = ClusterEvent("nodes", Action.ADD)


class Waiting:
    """Pods of one kind that `Fit` has rejected, at the times 0, 1, 2 ..., and the names of those it was asked about."""

    def __init__(self, number: int, priorities: Sequence[int] = (), helps: bool = True) -> None:
        self.asked: list[str] = []
        self.queue = SchedulingQueue()

        def hint(pod: PodInfo, old: object, new: object) -> bool:
            self.asked.append(pod.name)
            return helps

        events = {"Fit": (on("nodes", Action.ADD, hint),)}
        self.queue.serve(SCHEDULER, lambda pod, since: (-pod.priority, since), lambda pods: SUCCESS, events)
        for n in range(number):
            priority = priorities[n] if priorities else 0
            self.queue.add(CACHE.record(make_pod(f"p{n}", priority=priority)), float(n))
            self.rejected(self.popped(float(n)), float(n))

    def popped(self, now: float) -> Unit:
        unit = self.queue.pop(now)
        assert unit is not None
        return unit

    def rejected(self, unit: Unit, now: float, kind: str | None = "k") -> None:
        self.queue.requeue(unit, ["Fit"], "no", now, kind=kind)

    def happens(self, now: float = 100.0) -> bool:
        self.asked.clear()
        return self.queue.happened(ADDED, None, None, now)

    def tried(self, now: float = 100.0) -> list[str]:
        """The pods that are tried and placed, until none is left to try."""
        names = []
        while (unit := self.queue.pop(now)) is not None:
            names.append(unit.pod.name)
            self.queue.done(unit)
        return names


def test_an_event_is_judged_once_for_all_of_a_kind_and_wakes_the_first_of_them() -> None:
    waiting = Waiting(5, priorities=[0, 0, 9, 0, 9])

    assert waiting.happens()

    assert len(waiting.asked) == 1
    assert waiting.popped(100.0).pod.name == "p2"
    assert waiting.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 4, "gated": 0}
    assert waiting.tried() == ["p4", "p0", "p1", "p3"]


def test_an_event_that_helps_none_of_them_wakes_none() -> None:
    waiting = Waiting(5, helps=False)

    assert not waiting.happens()
    assert waiting.queue.pop(100.0) is None and len(waiting.asked) == 1


def test_when_one_is_rejected_again_the_others_go_on_waiting() -> None:
    waiting = Waiting(5)
    waiting.happens()
    waiting.queue.done(waiting.popped(100.0))
    waiting.rejected(waiting.popped(100.0), 100.0)

    assert waiting.queue.pop(100.0) is None and not waiting.queue.has_active
    assert waiting.queue.counts()["unschedulable"] == 4


def test_when_one_is_rejected_for_something_else_the_next_one_is_tried() -> None:
    waiting = Waiting(3)
    waiting.happens()
    waiting.rejected(waiting.popped(100.0), 100.0, kind="another")
    waiting.rejected(waiting.popped(100.0), 100.0, kind=None)

    assert waiting.tried() == ["p2"]


def test_a_rejection_says_nothing_about_events_that_came_since_the_unit_was_taken() -> None:
    waiting = Waiting(3)
    waiting.happens()
    unit = waiting.popped(100.0)
    waiting.happens()
    waiting.rejected(unit, 100.0)

    assert unit.place == "backoff"
    assert waiting.tried() == ["p1", "p2"]


def test_one_that_backs_off_does_not_hold_up_the_others() -> None:
    waiting = Waiting(3, priorities=[0, 0, 9])

    waiting.happens(now=2.5)

    assert waiting.tried(2.5) == ["p0", "p1"] and waiting.tried(3.0) == ["p2"]


def test_when_the_one_that_is_to_be_tried_goes_the_next_one_is_tried() -> None:
    waiting = Waiting(3)
    waiting.happens()
    waiting.queue.remove("pod-default-p0")

    assert waiting.queue.has_active and waiting.tried() == ["p1", "p2"]


def test_a_pod_that_becomes_unlike_the_others_is_not_judged_with_them_and_misses_nothing() -> None:
    waiting = Waiting(4)
    waiting.happens()
    for name in ("p2", "p3"):
        made = make_pod(name)
        made.metadata = msgspec.structs.replace(made.metadata, annotations={"a": name})
        waiting.queue.update(CACHE.record(made), 100.0)
    unit = waiting.popped(100.0)
    waiting.rejected(unit, 100.0)

    assert waiting.tried() == ["p2", "p3"]
    assert {unit.pod.name for unit in waiting.queue if unit.place == "unschedulable"} == {"p0", "p1"}


def test_whoever_has_waited_for_five_minutes_is_tried_though_others_of_its_kind_were_rejected() -> None:
    waiting = Waiting(3)

    assert waiting.queue.next_due(100.0) == 200.0
    assert waiting.tried(301.5) == ["p0", "p1"] and waiting.tried(302.0) == ["p2"]


# Units that lacked room


class Lacking(Waiting):
    """Units that wait for nodes and for pods to go; `lacks` says of a unit that it would lack room again."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self.counted: list[str] = []
        self.moments = 0
        self.lacks = True
        events = {"Fit": (on("nodes", Action.ADD), on("pods", Action.DELETE))}
        self.queue.serve(
            SCHEDULER, lambda pod, since: (-pod.priority, since), lambda pods: SUCCESS, events, None, self.counts_room
        )
        for n in range(number):
            self.queue.add(CACHE.record(make_pod(f"p{n}")), float(n))
            self.rejected(self.popped(float(n)), float(n))

    def rejected(self, unit: Unit, now: float, kind: str | None = "k") -> None:
        self.queue.requeue(unit, ["Fit"], "no", now, kind=kind, lack="of room")

    def counts_room(self, now: float) -> Callable[[Unit], bool]:
        self.moments += 1
        return self.lacks_room

    def lacks_room(self, unit: Unit) -> bool:
        assert unit.lack == "of room"
        self.counted.append(unit.pod.name)
        return self.lacks

    def pod_goes(self, now: float = 100.0) -> None:
        self.queue.happened(ClusterEvent("pods", Action.DELETE), None, None, now)


def test_after_many_pods_have_gone_one_unit_of_a_kind_is_asked_about_once() -> None:
    waiting = Lacking(3)
    for _ in range(5):
        waiting.pod_goes()

    assert waiting.tried() == [] and waiting.counted == ["p0"]
    assert not waiting.queue.has_active and waiting.queue.counts()["unschedulable"] == 3


def test_the_room_is_counted_at_one_moment_for_all_kinds_and_anew_after_the_next_pod() -> None:
    waiting = Lacking(0)
    for n in range(3):
        waiting.queue.add(CACHE.record(make_pod(f"p{n}")), float(n))
        waiting.rejected(waiting.popped(float(n)), float(n), kind=f"k{n}")
    waiting.pod_goes()

    assert waiting.tried() == [] and waiting.counted == ["p0", "p1", "p2"] and waiting.moments == 1

    waiting.pod_goes()

    assert waiting.tried() == [] and waiting.moments == 2


def test_units_that_may_have_room_are_tried() -> None:
    waiting = Lacking(3)
    waiting.pod_goes()
    waiting.tried()
    waiting.lacks = False
    waiting.pod_goes()

    assert waiting.tried() == ["p0", "p1", "p2"]


def test_after_an_event_that_may_help_by_more_than_room_nothing_is_counted() -> None:
    waiting = Lacking(2)
    waiting.pod_goes()
    waiting.happens()
    waiting.pod_goes()

    assert waiting.tried() == ["p0", "p1"] and waiting.counted == []


def test_units_are_tried_after_the_longest_wait_whatever_is_said_of_their_room() -> None:
    waiting = Lacking(2)

    assert waiting.tried(1000.0) == ["p0", "p1"]


def test_if_pods_go_more_often_than_room_may_be_counted_the_units_are_tried() -> None:
    waiting = Lacking(2)
    for n in range(COUNTS_AT_ONCE):
        waiting.pod_goes(100.0)
        assert waiting.tried(100.0) == [], n
    waiting.pod_goes(100.0)
    unit = waiting.popped(100.0)
    waiting.rejected(unit, 100.0)

    assert unit.pod.name == "p0" and len(waiting.counted) == COUNTS_AT_ONCE
    waiting.pod_goes(100.0 + 2 / COUNTS_PER_SECOND)
    assert waiting.tried(100.0 + 2 / COUNTS_PER_SECOND) == [] and len(waiting.counted) == COUNTS_AT_ONCE + 1


def test_no_slice_counts_the_room_for_many_kinds() -> None:
    waiting = Lacking(0)
    for n in range(30):
        waiting.queue.add(CACHE.record(make_pod(f"p{n}")), float(n))
        waiting.rejected(waiting.popped(float(n)), float(n), kind=f"k{n}")
    waiting.pod_goes()

    counted = []
    while waiting.queue.has_active:
        assert waiting.queue.pop(100.0) is None
        counted.append(len(waiting.counted))
    assert counted == [16, 30]
