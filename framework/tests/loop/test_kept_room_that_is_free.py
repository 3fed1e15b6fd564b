"""Whatever ends or moves a nomination, or makes its pod smaller: those who wait for the room hear of it at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import model
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.scheduling import Decision, decide
from gangline.groups.keys import KOORDINATOR_GROUP, KOORDINATOR_MIN_AVAILABLE
from gangline.queueing.units import Unit
from gangline.status import SUCCESS, unschedulable
from gangline.testing import make_pod

from .test_gangs_alike import NAME, GangWorld


def world(**first: Any) -> GangWorld:
    """One node of 4 CPUs, and a gang of two of which one member is meant for the node; nothing is written of that."""
    made = GangWorld()
    made.node("n-0", 0)
    made.gang(2, 2, **{"cpu": 4, **first})
    made.decide()
    nominate(made, "g-001-0")
    return made


def nominate(made: GangWorld, *names: str) -> None:
    """A plugin makes room on the node for these pods."""
    unit = unit_of(made, names[0])
    made.clock._elapsed += 15.0
    taken = take(made, unit)
    nominated = {pod.uid: "n-0" for pod in taken.members if pod.name in names}
    made.scheduler.outcomes.group_rejected(
        GroupRejection(taken, "room is being made", frozenset({"NodeResourcesFit"}), None, nominated), NAME
    )


def take(made: GangWorld, unit: Unit) -> Unit:
    """The unit is in flight."""
    made.scheduler.queue.start_over(made.clock.monotonic())
    while (taken := made.scheduler.queue.pop(made.clock.monotonic())) is not unit:
        assert taken is not None
        made._decided(taken)
    return unit


def unit_of(made: GangWorld, name: str) -> Unit:
    unit = made.scheduler.queue.get(f"pod-default-{name}")
    assert unit is not None
    return unit


def waits(made: GangWorld) -> str:
    """Another pod waits, because the room is kept; its name."""
    made.play(("gangs", 7, 1))
    made.settle()
    assert not made.bound
    return next(iter(reversed(made.waiting)))


def test_a_member_is_deleted_that_has_changed_before_its_nomination_was_written() -> None:
    made = world()
    name = waits(made)
    made.labelled(0)

    made.waiting_goes(0)
    made.settle()

    assert (list(made.bound), made.overlooked()) == ([name], [])


def test_a_member_joins_another_group_before_its_nomination_was_written() -> None:
    made = world()
    name = waits(made)

    pod = made.waiting["g-001-0"]
    note = {KOORDINATOR_GROUP: "other", KOORDINATOR_MIN_AVAILABLE: "2"}
    pod.metadata = msgspec.structs.replace(pod.metadata, annotations=note)
    made.handle.upsert(pod)
    made.settle()

    assert (list(made.bound), made.overlooked()) == ([name], [])


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written yet"])
def test_a_nominated_pod_asks_for_less(is_written: bool) -> None:
    made = world()
    name = waits(made)
    if is_written:
        made.nominated(0, "n-0")
    made.settle()

    pod = made.waiting["g-001-0"]
    smaller = make_pod("g-001-0", cpu=1, annotations=pod.metadata.annotations, scheduler_name=NAME)
    smaller.status = pod.status
    made.handle.upsert(smaller)
    made.settle()

    assert (list(made.bound), made.overlooked()) == ([name], [])


def test_a_pod_is_being_bound_to_another_node() -> None:
    made = GangWorld(more="")
    made.gang(1, 1, cpu=1, node_selector={"zone": "x"})
    made.clock._elapsed += 1.0
    made.gang(1, 1, cpu=4)
    made.nominated(1, "n-0")
    made.handle.upsert(make_pod("ending", cpu=2, node="n-0"))
    made.node("n-0", 0)
    made.settle()
    assert not made.bound

    made.node("n-1", 1)
    first = unit_of(made, "g-002-0")
    decision = made.outcome(take(made, first))
    assert isinstance(decision, GroupDecision) and decision.members[0].node == "n-1"
    made.settle()  # the binding of the first pod goes on for all that time

    assert (list(made.bound), made.overlooked()) == (["g-001-0"], [])


class MixedWorld(GangWorld):
    """Decides about pods on their own, too; only the names of those that are placed count."""

    def _decided(self, unit: Unit) -> None:
        if unit.group:
            super()._decided(unit)
            return
        outcome = decide(unit, self.scheduler.runtimes[NAME], self.cluster.cache, self.scheduler._cycles.nominated())
        if isinstance(outcome, Decision):
            self.bound[unit.pod.name] = self.waiting.pop(unit.pod.name)
            self.scheduler.outcomes.finished(outcome, SUCCESS)
        else:
            self.scheduler.outcomes.rejected(outcome, NAME)


def gang_with_a_port(made: GangWorld, **pod: Any) -> Unit:
    """A gang of two; the second member has a host port."""
    note = {KOORDINATOR_GROUP: "ports", KOORDINATOR_MIN_AVAILABLE: "2"}
    for member in range(2):
        one = make_pod(f"ports-{member}", annotations=note, scheduler_name=NAME, cpu=1, **pod)
        if member:
            one.spec.containers[0].ports = [model.ContainerPort(host_port=80)]
        made.waiting[one.metadata.name] = one
        made.handle.upsert(one)
    return unit_of(made, "ports-0")


def wants_the_port(made: GangWorld) -> str:
    """Another pod waits for the same port, and for nothing else; its name."""
    pod = make_pod("other", scheduler_name=NAME, cpu=1)
    pod.spec.containers[0].ports = [model.ContainerPort(host_port=80)]
    made.waiting[pod.metadata.name] = pod
    made.handle.upsert(pod)
    made.settle()
    assert "other" not in made.bound and unit_of(made, "other").rejected_by == {"NodePorts"}
    return pod.metadata.name


def test_a_nominated_gang_with_unlike_members_is_incomplete_now() -> None:
    made = MixedWorld(more="")
    made.node("n-0", 1)
    gang_with_a_port(made, node_selector={"zone": "none"})
    made.nominated(0, "n-0")
    made.nominated(1, "n-0")
    name = wants_the_port(made)

    made.needs(0, 3)
    made.settle()

    assert list(made.bound) == [name]


def test_a_gang_with_unlike_members_cannot_be_bound() -> None:
    made = MixedWorld(more="")
    made.node("n-0", 1)
    decision = made.outcome(take(made, gang_with_a_port(made)))
    assert isinstance(decision, GroupDecision)
    name = wants_the_port(made)

    made.scheduler.outcomes.group_finished(decision, [unschedulable("no"), unschedulable("no")], bound=False)
    made.clock._elapsed += 0.5  # the gang backs off for longer
    made.decide()

    assert list(made.bound) == [name]


def test_a_gang_without_hope_gives_room_back_though_it_has_changed_before_its_nomination_was_written() -> None:
    made = world()
    name = waits(made)

    made.labelled(0)  # the gang is tried again, and no preemption can help it
    made.settle()

    assert (list(made.bound), made.overlooked()) == ([name], [])
