"""Where units wait, when they are tried again, and that none is ever lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gangline import SUCCESS, Action, ClusterEvent, Code, PodInfo, Status, model, on, unschedulable
from gangline.api.hints import EventHint
from gangline.queueing.backing_off import QueueSettings
from gangline.queueing.moving import FAULT_RETRY
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import NEXT, QUEUED, Place, Unit
from gangline.state.cache import Cache
from gangline.testing import SCHEDULER, make_pod

ADDED = ClusterEvent("nodes", Action.ADD)
LABELLED = ClusterEvent("nodes", Action.UPDATE_NODE_LABEL)
CACHE = Cache()


def gate(pods: Sequence[PodInfo]) -> Status:
    return unschedulable("closed").by("Gate") if pods[0].gates else SUCCESS


def queue(**events: tuple[EventHint, ...] | None) -> SchedulingQueue:
    """A queue by priority and age; `Fit` wants new nodes, `Picky` those that its hint likes."""
    new = SchedulingQueue()
    registered: dict[str, tuple[EventHint, ...] | None] = {
        "Fit": (on("nodes", Action.ADD),),
        "Picky": (on("nodes", Action.ADD, lambda pod, old, new: new == pod.name),),
        "Any": None,
        "Gate": (on("pods", Action.UPDATE_POD_GATES_ELIMINATED),),
        **events,
    }
    new.serve(SCHEDULER, lambda pod, since: (-pod.priority, since), gate, registered)
    return new


def pod(name: str, gated: bool = False, nominated: str = "", **fields: Any) -> PodInfo:
    made = make_pod(name, scheduling_gates=[model.LocalName("g")] if gated else [], **fields)
    made.status.nominated_node_name = nominated
    return CACHE.record(made)


def popped(q: SchedulingQueue, now: float) -> Unit:
    unit = q.pop(now)
    assert unit is not None
    return unit


def rejected(q: SchedulingQueue, name: str, by: str, now: float = 0.0) -> Unit:
    """A pod that was tried once and is unschedulable."""
    q.add(pod(name), now)
    unit = popped(q, now)
    q.requeue(unit, [by], "no", now)
    return unit


def test_a_unit_that_was_in_flight_when_everything_changed_is_tried_again() -> None:
    q = queue()
    unit = q.add(pod("p"), 0.0)
    assert q.pop(0.0) is unit

    q.start_over(1.0)
    q.requeue(unit, ["Fit"], "no", 2.0, backoff=0.0)

    assert unit.place is Place.ACTIVE


def test_higher_priority_goes_first_and_then_the_older() -> None:
    q = queue()
    for i, (name, priority) in enumerate([("low", 0), ("late", 5), ("high", 9)]):
        q.add(pod(name, priority=priority), float(i))
    q.add(pod("later", priority=5), 9.0)

    assert [popped(q, 10.0).pod.name for _ in range(4)] == ["high", "late", "later", "low"]
    assert q.pop(10.0) is None


def test_backing_off_doubles_from_one_to_ten_seconds() -> None:
    q, now, delays = queue(), 0.0, []
    q.add(pod("p"), now)
    for _ in range(6):
        unit = popped(q, now)
        q.requeue(unit, [], "a fault", now, error=True)
        due = q.next_due(now)
        assert due is not None and q.pop(now + due - 0.001) is None
        delays.append(due)
        now += due

    assert delays == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_of_pods_that_are_rejected_within_a_second_the_most_important_comes_first_after_backing_off() -> None:
    q = queue()
    for name, priority, at in (("low", 0, 7.2), ("high", 9, 7.3)):
        q.add(pod(name, priority=priority), at)
        q.requeue(popped(q, at), [], "a fault", at, error=True)

    assert q.pop(8.99) is None
    assert [popped(q, 9.0).pod.name for _ in range(2)] == ["high", "low"]


@pytest.mark.parametrize("seconds", [0.25, 0.5])
def test_a_back_off_shorter_than_a_second_is_as_long_as_it_is(seconds: float) -> None:
    q = SchedulingQueue(QueueSettings(initial_backoff=seconds))
    q.serve("default-scheduler", lambda pod, since: (since,), lambda pods: SUCCESS, {})
    q.add(pod("p"), 7.7)
    q.requeue(popped(q, 7.7), [], "a fault", 7.7, error=True)

    assert q.next_due(7.7) == pytest.approx(seconds)


def test_an_event_that_a_plugin_registered_moves_what_it_rejected_after_its_back_off() -> None:
    q = queue()
    unit = rejected(q, "p", "Fit")

    assert q.happened(LABELLED, None, None, 0.5) == 0 and unit.place == "unschedulable"
    assert q.happened(ADDED, None, None, 0.5) == 1 and unit.place == "backoff"
    assert q.pop(0.9) is None and q.pop(1.0) is unit


def test_an_event_after_the_back_off_makes_it_active_at_once() -> None:
    q = queue()
    unit = rejected(q, "p", "Fit")

    q.happened(ADDED, None, None, 5.0)

    assert unit.place == "active" and q.has_active


@pytest.mark.parametrize(("new", "place"), [("p", "active"), ("other", "unschedulable")], ids=["helps", "does not"])
def test_a_hint_decides_whether_the_event_helps(new: str, place: str) -> None:
    q = queue()
    unit = rejected(q, "p", "Picky")

    q.happened(ADDED, None, new, 5.0)

    assert unit.place == place


def test_a_hint_that_raises_costs_an_attempt_and_nothing_else() -> None:
    def broken(pod: PodInfo, old: Any, new: Any) -> bool:
        raise KeyError("oh")

    q = queue(Broken=(on("nodes", Action.ADD, broken),))
    unit = rejected(q, "p", "Broken")

    assert q.happened(ADDED, None, None, 5.0) == 1 and unit.place == "active"


def test_a_plugin_that_registers_nothing_wants_every_event() -> None:
    q = queue()
    unit = rejected(q, "p", "Any")

    q.happened(LABELLED, None, None, 5.0)

    assert unit.place == "active"


def test_an_event_in_flight_is_remembered_for_those_that_were_in_flight_alone() -> None:
    q = queue()
    q.add(pod("early"), 0.0)
    early = popped(q, 0.0)
    q.happened(ADDED, None, None, 0.0)
    q.add(pod("late"), 0.0)
    late = popped(q, 0.0)

    q.requeue(early, ["Fit"], "no", 0.0)
    q.requeue(late, ["Fit"], "no", 0.0)

    assert (early.place, late.place) == ("backoff", "unschedulable")


def test_a_change_of_the_pod_in_flight_counts_when_it_comes_back() -> None:
    q = queue()
    q.add(pod("p", cpu=4), 0.0)
    unit = popped(q, 0.0)
    q.update(pod("p", cpu=1), 0.0)

    q.requeue(unit, ["Fit"], "no", 0.0)

    assert unit.place == "backoff"
    q.requeue(popped(q, 1.0), ["Fit"], "no", 1.0)
    assert unit.place == "unschedulable"


def test_what_happened_is_forgotten_once_nobody_in_flight_can_need_it() -> None:
    q = queue()
    q.add(pod("slow"), 0.0)
    slow = popped(q, 0.0)
    for i in range(100):
        q.add(pod(f"p{i}"), 0.0)
        q.happened(ADDED, None, i, 0.0)
        unit = popped(q, 0.0)
        if i == 50:
            q.done(slow)
            slow = unit
        else:
            q.done(unit)

    assert len(q._flights) == 49


def test_five_minutes_after_its_rejection_a_unit_is_tried_again() -> None:
    q = queue()
    unit = rejected(q, "p", "Fit")

    assert q.next_due(0.0) == 300.0
    assert q.pop(299.9) is None and q.pop(300.0) is unit


def test_a_gated_pod_is_not_tried_until_its_gates_are_gone() -> None:
    q = queue()
    unit = q.add(pod("p", gated=True), 0.0)
    assert (unit.place, unit.message, q.pop(1.0), q.next_due(1.0)) == ("gated", "closed", None, None)

    q.update(pod("p", gated=True, labels={"still": "closed"}), 2.0)
    assert unit.place == "gated"
    q.update(pod("p"), 3.0)

    assert q.pop(3.0) is unit


def test_a_pod_that_a_plugins_fault_holds_back_is_asked_about_again() -> None:
    faults = [Status(Code.ERROR, ("a slip",), "Gate")]
    q = SchedulingQueue()
    q.serve(SCHEDULER, lambda pod, since: (since,), lambda pods: faults.pop() if faults else SUCCESS, {"Gate": ()})
    unit = q.add(pod("p"), 0.0)
    assert unit.place == "gated" and q.next_due(0.0) == FAULT_RETRY

    assert q.pop(FAULT_RETRY - 0.1) is None and q.pop(FAULT_RETRY) is unit


def test_an_event_that_the_gating_plugin_wants_lets_the_pod_try_the_gate_again() -> None:
    open_now: list[bool] = []
    q = SchedulingQueue()
    q.serve(
        SCHEDULER,
        lambda pod, since: (since,),
        lambda pods: SUCCESS if open_now else unschedulable("quota").by("Quota"),
        {"Quota": (on("quotas", Action.UPDATE_OTHER),)},
    )
    unit = q.add(pod("p"), 0.0)

    assert q.happened(ClusterEvent("quotas", Action.UPDATE_OTHER), None, None, 1.0) == 0 and unit.place == "gated"
    open_now.append(True)
    assert q.happened(ADDED, None, None, 1.0) == 0 and unit.place == "gated"
    assert q.happened(ClusterEvent("quotas", Action.UPDATE_OTHER), None, None, 1.0) == 1 and unit.place == "active"


@pytest.mark.parametrize("place", ["active", "backoff", "unschedulable", "gated", "in flight"])
def test_a_removed_pod_is_gone_from_wherever_it_was(place: str) -> None:
    q = queue()
    q.add(pod("p", gated=place == "gated", nominated="n"), 0.0)
    if place not in ("active", "gated"):
        unit = popped(q, 0.0)
        if place != "in flight":
            q.requeue(unit, ["Fit"], "no", 0.0, error=place == "backoff")
    unit = q.get("pod-default-p") or pytest.fail("the unit is gone")
    assert unit.place == place

    assert q.remove(unit.uid) is unit.pod
    q.happened(ADDED, None, None, 400.0)
    q.requeue(unit, ["Fit"], "late answer", 400.0)

    assert q.pop(1000.0) is None and q.get(unit.uid) is None and list(q) == []
    assert not any(q.counts().values()) and not q.nominations.by_node and q.next_due(0.0) is None


def test_a_pod_that_comes_back_under_its_uid_is_a_new_unit() -> None:
    q = queue()
    q.add(pod("p"), 0.0)
    old = popped(q, 0.0)
    q.remove(old.uid)
    new = q.add(pod("p"), 1.0)

    q.requeue(old, [], "late", 1.0, error=True)

    assert q.pop(1.0) is new and new.attempts == 1


def test_a_change_that_may_help_moves_a_rejected_pod_and_another_does_not() -> None:
    q = queue()
    unit = rejected(q, "p", "Fit")

    q.update(pod("p", annotations={"note": "x"}), 5.0)
    assert unit.place == "unschedulable" and unit.pod.annotations == {"note": "x"}
    q.update(pod("p", labels={"app": "x"}), 5.0)

    assert unit.place == "active"


def test_a_claim_that_was_made_for_a_gated_pod_lets_it_try_the_gate_again() -> None:
    def claimless(pods: Sequence[PodInfo]) -> Status:
        return SUCCESS if pods[0].claims else unschedulable("waits for its claim").by("Claims")

    q = SchedulingQueue()
    q.serve(SCHEDULER, lambda pod, since: (-pod.priority, since), claimless, {"Claims": ()})
    q.add(pod("p"), 0.0)
    assert q.pop(0.0) is None
    made = make_pod("p")
    made.status.resource_claim_statuses = [model.PodResourceClaimStatus("gpu", "p-gpu-x7k2p")]

    q.update(CACHE.record(made), 1.0)

    assert popped(q, 1.0).pod.claims == {"gpu": "p-gpu-x7k2p"}


def test_members_of_one_class_with_claims_of_their_own_are_asked_about_one_by_one() -> None:
    pods = [make_pod(name) for name in ("a", "b", "c")]
    for each in pods[:2]:
        each.status.resource_claim_statuses = [model.PodResourceClaimStatus("gpu", f"{each.metadata.name}-gpu")]
    unit = Unit([CACHE.record(each) for each in (*pods, make_pod("d"))], 0.0, group="g")

    assert [each.name for each in unit.kinds()] == ["a", "b", "d"]


def test_activating_skips_the_wait_for_an_event_but_not_the_back_off() -> None:
    q = queue()
    unit = rejected(q, "p", "Fit")

    q.activate([unit.uid, "unknown"], 0.5)

    assert unit.place == "backoff"


def test_next_due_passes_over_what_is_gone() -> None:
    q = queue()
    for name in ("gone", "waits"):
        q.add(pod(name), 0.0)
        q.requeue(popped(q, 0.0), [], "fault", 0.0 if name == "gone" else 0.5, error=True)
    rejected(q, "rejected", "Fit", 0.6)

    q.remove("pod-default-gone")

    assert q.next_due(0.6) == pytest.approx(1.4)
    assert queue().next_due(0.0) is None


def test_nominations_follow_the_pod_and_hold_its_newest_record() -> None:
    q = queue()
    first, newer = pod("p"), pod("p", labels={"app": "x"})
    q.add(first, 0.0)
    q.nominations.nominate(first, "a")

    q.update(newer, 0.0)
    assert q.nominations.by_node == {"a": {"pod-default-p": newer}}
    q.nominations.nominate(newer, "b")
    assert q.nominations.by_node == {"b": {"pod-default-p": newer}}
    q.nominations.nominate(newer, "")

    assert q.nominations.by_node == {}


def test_what_the_status_says_of_a_nomination_counts_whoever_has_written_it() -> None:
    q = queue()
    q.add(pod("p", nominated="a"), 0.0)

    assert set(q.nominations.by_node) == {"a"}
    q.update(pod("p", nominated="b"), 0.0)
    assert set(q.nominations.by_node) == {"b"}
    q.update(pod("p"), 0.0)
    assert q.nominations.by_node == {}


def test_a_pod_of_another_scheduler_is_not_ours() -> None:
    assert queue().serves(SCHEDULER) and not queue().serves("other")


def ways_from(place: Place) -> set[Place]:
    """Every place that can be reached, the place itself included."""
    found, left = {place}, [place]
    while left:
        new = NEXT[left.pop()] - found
        found |= new
        left += new
    return found


def test_the_table_has_every_place_and_a_way_to_each_and_nothing_comes_back_from_where_it_is_gone() -> None:
    assert NEXT.keys() == set(Place) == ways_from(Place.NEW)
    assert ways_from(Place.GONE) == {Place.GONE}
    assert all(Place.NEW not in after for after in NEXT.values())


def test_a_step_that_the_table_does_not_have_names_both_places() -> None:
    q = queue()
    q.add(pod("p"), 0.0)
    unit = popped(q, 0.0)

    with pytest.raises(ValueError, match="pod-default-p cannot go from IN_FLIGHT to GATED"):
        unit.move(Place.GATED, 0.0)


class AnyHistory(RuleBasedStateMachine):
    """A model of the queue: the pods that exist, and those in flight."""

    @initialize()
    def start(self) -> None:
        self.queue, self.now = queue(), 0.0
        self.places: dict[int, tuple[Unit, Place]] = {}
        self.waiting: set[str] = set()
        self.flying: dict[str, Unit] = {}

    @rule(name=st.sampled_from("abcdef"), gated=st.booleans(), cpu=st.integers(1, 3), label=st.sampled_from("xy"))
    def pod_comes_or_changes(self, name: str, gated: bool, cpu: int, label: str) -> None:
        new = pod(name, gated and name not in self.waiting, cpu=cpu, labels={"app": label})
        self.queue.update(new, self.now)
        self.waiting.add(name)

    @rule(name=st.sampled_from("abcdef"))
    def pod_goes(self, name: str) -> None:
        assert (self.queue.remove(f"pod-default-{name}") is None) == (name not in self.waiting)
        self.waiting.discard(name)
        self.flying.pop(name, None)

    @rule()
    def unit_is_tried(self) -> None:
        unit = self.queue.pop(self.now)
        if unit is not None:
            assert unit.pod.name in self.waiting - self.flying.keys()
            self.flying[unit.pod.name] = unit

    @precondition(lambda self: self.flying)
    @rule(by=st.sampled_from(["Fit", "Picky", "Any", ""]), kind=st.sampled_from(["k", None]), i=st.integers(0, 5))
    def unit_is_rejected(self, by: str, kind: str | None, i: int) -> None:
        name = sorted(self.flying)[i % len(self.flying)]
        unit = self.flying.pop(name)
        self.queue.requeue(unit, [by] if by else [], "no", self.now, error=not by, kind=kind)
        assert unit.place != "in flight"

    @precondition(lambda self: self.flying)
    @rule(i=st.integers(0, 5))
    def unit_is_bound(self, i: int) -> None:
        name = sorted(self.flying)[i % len(self.flying)]
        self.queue.done(self.flying.pop(name))
        self.waiting.discard(name)

    @rule(event=st.sampled_from([ADDED, LABELLED]), new=st.sampled_from("abc"))
    def cluster_changes(self, event: ClusterEvent, new: str) -> None:
        self.queue.happened(event, None, new, self.now)

    @rule(seconds=st.sampled_from([0.5, 3.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def every_step_was_one_that_the_table_has(self) -> None:
        """In one rule a unit may take more than one step; then one way through the table leads there."""
        for unit, before in self.places.values():
            assert unit.place in ways_from(before), (before, unit.place)
        self.places = {id(unit): (unit, unit.place) for unit in self.queue}

    @invariant()
    def every_unit_is_in_exactly_one_place(self) -> None:
        units = {unit.pod.name: unit for unit in self.queue}
        counts = self.queue.counts()

        assert units.keys() == self.waiting
        assert {name for name, unit in units.items() if unit.place == "in flight"} == self.flying.keys()
        assert counts == {place: sum(unit.place == place for unit in units.values()) for place in QUEUED}
        held = {"unschedulable": self.queue._wanting.unschedulable, "gated": self.queue._wanting.gated}
        for place, units_there in held.items():
            assert units_there.keys() == {u.uid for u in units.values() if u.place == place}
        backoff = self.queue._moving.waking.backing_off()
        for place, heap in (("active", list(self.queue._moving.active)), ("backoff", backoff)):
            there = [unit.uid for unit in heap if unit.place == place]
            assert sorted(there) == sorted(u.uid for u in units.values() if u.place == place)

    def teardown(self) -> None:
        """Whatever happened, everything that is not gated is tried again in the end."""
        if not hasattr(self, "queue"):
            return
        for name, unit in list(self.flying.items()):
            self.queue.requeue(unit, ["Fit"], "no", self.now)
            del self.flying[name]
        free = {unit.pod.name for unit in self.queue if unit.place != "gated"}
        tried = set()
        while (last := self.queue.pop(self.now + 700.0)) is not None:
            tried.add(last.pod.name)
        assert tried == free

    @rule(name=st.sampled_from("abcdef"), place=st.sampled_from(Place))
    def unit_is_moved_by_the_table_alone(self, name: str, place: Place) -> None:
        unit = self.queue.get(f"pod-default-{name}")
        if unit is not None and place not in NEXT[unit.place]:
            before = unit.place, unit.entered
            with pytest.raises(ValueError, match=f"{unit.place.name} to {place.name}"):
                unit.move(place, self.now)
            assert (unit.place, unit.entered) == before


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(stateful_step_count=40)


def test_room_for_pods_to_come_is_kept_until_they_have_come_or_nobody_expects_them() -> None:
    q = queue()
    first, second = pod("a").anew(), pod("b").anew()

    q.nominations.expect("g", [(first, "x"), (second, "y")])
    assert q.nominations.by_node == {"x": {first.uid: first}, "y": {second.uid: second}}
    assert q.nominations.is_expected("g") and not q.nominations.is_expected("h")
    assert q.nominations.take_freed() == []
    q.nominations.expect("g", [(second, "z")])
    assert q.nominations.by_node == {"z": {second.uid: second}}
    assert q.nominations.take_freed() == [first, second]
    q.nominations.expect("g", [])
    assert q.nominations.take_freed() == [second]
    assert not q.nominations.by_node and not q.nominations.is_expected("g")


def test_a_group_that_is_expected_comes_before_others_of_its_priority() -> None:
    q = SchedulingQueue()
    q.serve(SCHEDULER, lambda pod, since: (-pod.priority, since), gate, {}, lambda pod: pod.labels.get("g", ""))
    q.nominations.expect("late", [(pod("gone").anew(), "x")])
    for number, (name, priority) in enumerate((("early", 0), ("late", 0), ("high", 1))):
        q.add(pod(name, labels={"g": name}, priority=priority), float(number))

    assert [popped(q, 5.0).group for _ in range(3)] == ["high", "late", "early"]
