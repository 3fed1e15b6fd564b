"""Many units are moved in slices, and tried in the same order as if they were moved at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from gangline import SUCCESS, Action, ClusterEvent, on, unschedulable
from gangline.queueing.moving import SLICE
from gangline.queueing.queue import SchedulingQueue
from gangline.state.cache import Cache
from gangline.testing import SCHEDULER, make_pod

CACHE = Cache()
MANY = 3 * SLICE


def queue_of_many() -> SchedulingQueue:
    """Unschedulable pods without a kind; the last one has the highest priority."""
    made = SchedulingQueue()
    events = {"Fit": (on("nodes", Action.ADD),)}
    made.serve(SCHEDULER, lambda pod, since: (-pod.priority, since), lambda pods: SUCCESS, events)
    for n in range(MANY):
        made.add(CACHE.record(make_pod(f"p{n}", priority=int(n == MANY - 1))), 0.0)
    units = [unit for _ in range(MANY) if (unit := made.pop(0.0)) is not None]
    for unit in sorted(units, key=lambda unit: unit.pod.priority):
        made.requeue(unit, ["Fit"], "no", 0.0)
    return made


def event(queue: SchedulingQueue) -> None:
    assert queue.happened(ClusterEvent("nodes", Action.ADD), None, None, 400.0)


CAUSES: dict[str, Callable[[SchedulingQueue], None]] = {
    "event": event,
    "start over": lambda queue: queue.start_over(400.0),
    "five minutes": lambda queue: None,
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_one_call_moves_a_slice_and_units_are_tried_when_all_are_moved(
    cause: Callable[[SchedulingQueue], None],
) -> None:
    queue = queue_of_many()

    cause(queue)
    active = [queue.counts()["active"]]
    tried: list[str] = []
    while not tried or queue.has_active:
        unit = queue.pop(400.0)
        if unit is None:
            active.append(queue.counts()["active"])
        else:
            tried.append(unit.pod.name)

    assert all(after - before <= SLICE for before, after in itertools.pairwise(active))
    assert len(active) >= MANY // SLICE and tried == [f"p{MANY - 1}", *(f"p{n}" for n in range(MANY - 1))]


def test_units_whose_backoffs_end_at_once_are_moved_in_slices() -> None:
    queue = queue_of_many()
    queue.happened(ClusterEvent("nodes", Action.ADD), None, None, 0.5)
    while queue.counts()["backoff"] < MANY:
        assert queue.pop(0.5) is None

    assert queue.pop(1.0) is None and queue.counts()["active"] == SLICE and queue.has_active


def test_gated_units_are_asked_again_in_slices_and_those_that_are_gone_are_not() -> None:
    queue, is_open = SchedulingQueue(), False
    queue.serve(SCHEDULER, lambda pod, since: (since,), lambda pods: SUCCESS if is_open else unschedulable("no"), {})
    for n in range(MANY):
        queue.add(CACHE.record(make_pod(f"p{n}")), 0.0)
    is_open = True

    queue.start_over(1.0)
    assert queue.counts()["gated"] == MANY - SLICE
    assert queue.remove(f"pod-default-p{MANY - 1}") is not None
    while queue.pop(1.0) is None:
        pass
    assert queue.counts() == {"active": MANY - 2, "backoff": 0, "unschedulable": 0, "gated": 0}
