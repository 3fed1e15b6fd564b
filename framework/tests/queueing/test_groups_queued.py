"""Groups in the queue: one unit for all members, gated until enough are there, whole wherever it goes."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.api.hints import Action, ClusterEvent, on
from gangline.queueing.queue import SchedulingQueue
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.status import SUCCESS, Status, unschedulable
from gangline.testing import SCHEDULER, make_pod
from gangline.wire.custom_resources import CONSUMED_CLASS, CONSUMED_REQUEST

CACHE = Cache()
NEEDED = 3


def member(number: int) -> PodInfo:
    return CACHE.record(make_pod(f"a-{number}", labels={"gang": "a"}))


def queue() -> SchedulingQueue:
    def gate(pods: Sequence[PodInfo]) -> Status:
        return SUCCESS if len(pods) >= NEEDED else unschedulable("too few").by("PodGroups")

    new = SchedulingQueue()
    events = {"Fit": (on("nodes", Action.ADD),), "PodGroups": ()}
    new.serve(SCHEDULER, lambda pod, since: (since,), gate, events, lambda pod: pod.labels.get("gang", ""))
    return new


def complete(now: float = 0.0) -> SchedulingQueue:
    new = queue()
    for number in range(NEEDED):
        new.add(member(number), now)
    return new


def test_members_wait_behind_the_gate_until_enough_are_there() -> None:
    q = queue()
    q.add(member(0), 0.0)
    unit = q.add(member(1), 0.0)

    assert unit.place == "gated" and q.pop(0.0) is None
    assert q.add(member(2), 1.0) is unit

    assert unit.place == "active" and q.pop(1.0) is unit and len(unit.members) == 3


def test_a_group_waits_from_the_moment_that_enough_are_there() -> None:
    q = queue()
    units = [q.add(member(number), 10.0 * number) for number in range(NEEDED)]

    unit = units[-1]
    assert (unit.added, unit.complete) == (0.0, 20.0)


def test_a_member_that_leaves_takes_nobody_along() -> None:
    q = complete()

    q.remove(member(1).uid)

    unit = q.group("a")
    assert unit is not None and [pod.name for pod in unit.members] == ["a-0", "a-2"]
    assert q.get(member(1).uid) is None and q.get(member(2).uid) is unit


def test_members_that_come_while_the_others_are_in_flight_join_when_those_come_back() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None

    q.add(member(3), 0.5)
    assert [pod.name for pod in unit.late] == ["a-3"]
    q.requeue(unit, ("Fit",), "no room", 1.0)

    assert len(unit.members) == 4 and unit.place == "backoff"


def test_those_that_were_bound_leave_and_the_late_ones_stay() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None
    q.add(member(3), 0.5)

    left = q.leave(unit, {pod.uid for pod in unit.members})

    assert left and [pod.name for pod in unit.members] == ["a-3"]
    assert q.get(member(0).uid) is None


def test_a_unit_without_members_is_gone() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None

    q.done(unit)

    assert unit.place == "gone" and q.group("a") is None and q.pop(10.0) is None


def test_a_rejected_group_is_tried_again_when_its_time_comes() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None
    q.requeue(unit, ("Fit",), "not this close", 0.0, retry_after=120.0)

    assert q.next_due(0.0) == 120.0
    assert q.pop(119.0) is None

    assert q.pop(120.0) is unit


def test_an_event_that_helps_wakes_the_group_once() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None
    q.requeue(unit, ("Fit",), "no room", 0.0)

    assert q.happened(ClusterEvent("nodes", Action.ADD), None, None, 5.0) == 1

    assert q.pop(5.0) is unit and q.counts()["active"] == 0


def test_pods_are_counted_not_units() -> None:
    assert complete().counts()["active"] == NEEDED


def test_a_pod_whose_group_changes_moves() -> None:
    q = complete()

    q.update(CACHE.record(make_pod("a-2", labels={"gang": ""})), 1.0)

    alone = q.get(member(2).uid)
    assert alone is not None and alone.group == "" and alone is not q.group("a")


def test_a_member_that_comes_lets_a_rejected_group_be_tried_again() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None
    q.requeue(unit, ("Fit",), "waiting for more pods", 0.0)

    q.add(member(3), 5.0)

    assert q.pop(5.0) is unit and len(unit.members) == 4


def test_a_member_that_goes_lets_a_rejected_group_be_tried_again() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None
    q.requeue(unit, ("Fit",), "its pods contradict each other", 0.0)

    q.remove(member(2).uid)

    assert q.next_due(5.0) == 0.0
    assert q.pop(5.0) is unit and len(unit.members) == 2


def test_a_member_that_is_placed_by_somebody_else_opens_the_gate_for_the_others() -> None:
    placed: list[PodInfo] = []

    def gate(pods: Sequence[PodInfo]) -> Status:
        return SUCCESS if len(pods) + len(placed) >= NEEDED else unschedulable("too few").by("PodGroups")

    q = SchedulingQueue()
    q.serve(SCHEDULER, lambda pod, since: (since,), gate, {}, lambda pod: pod.labels.get("gang", ""))
    unit = q.add(member(0), 0.0)
    q.add(member(1), 0.0)
    placed.append(member(2))

    q.placed_elsewhere(member(2))

    assert q.pop(1.0) is unit


def test_members_that_turn_out_to_be_alone_are_tried_one_by_one() -> None:
    group_of = {"a-0": "job", "a-1": "job"}
    q = SchedulingQueue()
    q.serve(SCHEDULER, lambda pod, since: (since,), lambda pods: SUCCESS, {}, lambda pod: group_of.get(pod.name, ""))
    q.add(member(0), 0.0)
    q.add(member(1), 0.0)

    group_of.clear()

    popped = [q.pop(1.0), q.pop(1.0), q.pop(1.0)]
    assert [unit and [pod.name for pod in unit.members] for unit in popped] == [["a-0"], ["a-1"], None]


def test_an_annotation_may_be_what_a_group_waits_for() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None
    q.requeue(unit, ("Fit",), "unknown level", 0.0)

    q.update(CACHE.record(make_pod("a-0", labels={"gang": "a"}, annotations={"level": "leaf"})), 5.0)

    assert q.pop(5.0) is unit


def test_what_the_scheduler_tells_autoscalers_on_its_pods_is_no_reason_to_try_them() -> None:
    q = complete()
    unit = q.pop(0.0)
    assert unit is not None
    q.requeue(unit, ("Fit",), "no room", 0.0)

    told = {CONSUMED_REQUEST: "a-1", CONSUMED_CLASS: "check-capacity.autoscaling.x-k8s.io"}
    q.update(CACHE.record(make_pod("a-0", labels={"gang": "a"}, annotations=told)), 5.0)

    assert q.pop(5.0) is None


def test_other_rules_let_everything_be_tried_again() -> None:
    q = complete()
    rejected = q.pop(0.0)
    assert rejected is not None
    q.requeue(rejected, ("Fit",), "no room", 0.0)
    held = q.add(CACHE.record(make_pod("b-0", labels={"gang": "b"})), 0.0)

    q.serve(SCHEDULER, lambda pod, since: (since,), lambda pods: SUCCESS, {}, lambda pod: pod.labels.get("gang", ""))
    q.start_over(20.0)

    assert {q.pop(20.0), q.pop(20.0)} == {rejected, held}


def test_others_hear_of_the_room_of_a_nominated_pod_that_moves_to_another_group_in_flight() -> None:
    q = complete()
    q.serve("other", lambda pod, since: (since,), lambda pods: SUCCESS, {"Fit": (on("pods", Action.DELETE),)})
    q.add(CACHE.record(make_pod("other", scheduler_name="other")), 0.0)
    units = [q.pop(0.0), q.pop(0.0)]
    other = next(unit for unit in units if unit is not None and not unit.group)
    group = next(unit for unit in units if unit is not None and unit.group)
    q.requeue(other, ["Fit"], "no room", 0.0, backoff=0.0)

    moved = make_pod("a-0", labels={"gang": "b"})
    moved.status.nominated_node_name = "n"
    q.update(CACHE.record(moved), 1.0)
    q.requeue(group, ["Fit"], "no room", 1.0, backoff=0.0)
    tried = {unit.uid for unit in iter(lambda: q.pop(2.0), None)}

    assert other.uid in tried and q.group("b") is not None
