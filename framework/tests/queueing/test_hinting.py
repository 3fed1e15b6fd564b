"""What happens in the cluster costs a bounded time and a bounded memory, whatever waits and whatever is in flight."""

from __future__ import annotations

from gangline import SUCCESS, Action, ClusterEvent, on
from gangline.api.hints import Hint
from gangline.queueing.hinting import BURST, MOST_KEPT, SHARE, HintTime
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.testing import SCHEDULER, make_pod

CACHE = Cache()
ADDED = ClusterEvent("nodes", Action.ADD)


class Work:
    """CPU time that passes when somebody works."""

    def __init__(self) -> None:
        self.done = 0.0

    def __call__(self) -> float:
        return self.done


def queue(hint: Hint) -> SchedulingQueue:
    made = SchedulingQueue()
    made.serve(SCHEDULER, lambda pod, since: (since,), lambda pods: SUCCESS, {"Slow": (on("nodes", Action.ADD, hint),)})
    return made


def waiting(q: SchedulingQueue, number: int) -> list[Unit]:
    """So many units that were tried once."""
    for n in range(number):
        q.add(CACHE.record(make_pod(f"p-{n}")), 0.0)
    units = [unit for _ in range(number) if (unit := q.pop(0.0)) is not None]
    for unit in units:
        q.requeue(unit, ["Slow"], "no", 0.0)
    return units


def test_hints_of_thousands_of_pods_take_no_more_than_their_time_and_nobody_misses_an_event() -> None:
    work, asked = Work(), []

    def slow(pod: object, old: object, new: object) -> bool:
        work.done += 0.01
        asked.append(pod)
        return False

    q = queue(slow)
    q._wanting.time = HintTime(work)
    waiting(q, 5000)
    before, tried = len(asked), 0

    assert q.happened(ADDED, None, None, 1.0)
    while q.has_active:
        tried += q.pop(1.0) is not None

    assert len(asked) - before <= BURST / 0.01 + 1
    assert tried >= 5000 - BURST / 0.01 - 1


def test_the_time_for_hints_comes_back_with_the_clock() -> None:
    work = Work()
    hints = HintTime(work)
    hints.begin(0.0)
    work.done += 1.0
    hints.end()

    assert hints.begin(0.1).seconds == 0.1 * SHARE
    assert hints.begin(1000.0).seconds == BURST


def test_what_happens_while_a_pod_waits_for_its_volume_does_not_grow_without_end() -> None:
    q = queue(lambda pod, old, new: False)
    q.add(CACHE.record(make_pod("slow")), 0.0)
    unit = q.pop(0.0)
    assert unit is not None
    for n in range(100 * MOST_KEPT):
        q.happened(ADDED, None, str(n), 1.0)

    assert len(q._flights) <= MOST_KEPT
    q.requeue(unit, ["Slow"], "no", 1.0)
    assert unit.place == "backoff"  # nobody knows any more what it has missed


def test_a_unit_whose_flight_is_remembered_waits_for_what_helps() -> None:
    q = queue(lambda pod, old, new: False)
    q.add(CACHE.record(make_pod("quick")), 0.0)
    unit = q.pop(0.0)
    assert unit is not None
    q.happened(ADDED, None, "node", 1.0)
    q.requeue(unit, ["Slow"], "no", 1.0)

    assert unit.place == "unschedulable"
