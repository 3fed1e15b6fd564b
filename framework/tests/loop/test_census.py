"""Pods are counted at each look, groups a part at a time, and the gauges of groups show whole rounds."""

from __future__ import annotations

from gangline.api.pod_group import PodGroup
from gangline.loop.census import Census
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Unit
from gangline.status import SUCCESS, Status
from gangline.telemetry.metrics import Metrics
from gangline.testing import make_pod
from gangline.testing.gangs import Gangs, fabric


class Told:
    """Stands for the outcomes: keeps which groups were told that they are held."""

    def __init__(self) -> None:
        self.groups: list[str] = []

    def group_held(self, unit: Unit, group: PodGroup | None, message: str) -> None:
        self.groups.append(unit.group)


class Counted(SchedulingQueue):
    """A queue that counts how many rounds its groups were looked at."""

    rounds = 0

    def groups(self) -> list[Unit]:
        self.rounds += 1
        return super().groups()


def census(gangs: Gangs, most: int, leads: bool = True) -> tuple[Census, Counted, Metrics, Told]:
    queue, metrics, told = Counted(), Metrics(), Told()

    def admit(pods: object) -> Status:
        return gangs.runtime.admit(pods) if isinstance(pods, list) else SUCCESS

    queue.serve("default-scheduler", lambda pod, since: (since,), admit, {}, gangs.runtime.group_key)
    runtimes = {"default-scheduler": gangs.runtime}
    counting = Census(queue, lambda: runtimes, told, metrics, tuple, lambda: leads, most)  # type: ignore[arg-type]  # a fake
    return counting, queue, metrics, told


def pending(metrics: Metrics) -> dict[str, float]:
    places = ("active", "gated")
    return {
        place: metrics.registry.get_sample_value("scheduler_pending_pods", {"queue": place}) or 0.0 for place in places
    }


def test_one_look_takes_a_part_and_the_gauges_show_all_groups_when_the_round_is_done() -> None:
    gangs = Gangs(fabric())
    looks, queue, metrics, told = census(gangs, most=3)
    for number in range(25):
        queue.add(gangs.cache.record(make_pod(f"p{number}")), 0.0)
    for number in range(4):
        for pod in gangs.gang(f"g{number}", 3)[:2]:  # one is missing
            queue.add(pod, 0.0)

    seen = []
    for now in (5.0, 6.0):
        looks.look(now)
        seen.append((pending(metrics), metrics.registry.get_sample_value("gangline_gang_waiting")))

    assert seen == [({"active": 25, "gated": 8}, 0.0), ({"active": 25, "gated": 8}, 4.0)]
    assert sorted(told.groups) == [queue_key(gangs, f"g{number}") for number in range(4)]
    assert queue.rounds == 1


def queue_key(gangs: Gangs, name: str) -> str:
    return gangs.runtime.group_key(gangs.pod(name, 99))


def test_a_few_pods_are_counted_at_one_look_and_groups_that_have_just_come_are_not_told() -> None:
    gangs = Gangs(fabric())
    looks, queue, metrics, told = census(gangs, most=1000)
    queue.add(gangs.gang("g", 3)[0], 10.0)

    looks.look(10.5)
    assert pending(metrics) == {"active": 0, "gated": 1} and not told.groups

    looks.look(11.5)
    assert len(told.groups) == 1


def test_what_went_meanwhile_is_not_counted() -> None:
    gangs = Gangs(fabric())
    looks, queue, metrics, _ = census(gangs, most=1)
    pods = [gangs.gang(f"g{number}", 3)[0] for number in range(2)]
    for pod in pods:
        queue.add(pod, 0.0)
    looks.look(1.0)
    queue.remove(pods[1].uid)

    looks.look(2.0)

    assert pending(metrics)["gated"] == 1
    assert metrics.registry.get_sample_value("gangline_gang_waiting") == 1.0


def test_a_standby_counts_and_tells_nobody() -> None:
    """Nobody would write what it says, and the conditions of groups that come and go would pile up."""
    gangs = Gangs(fabric())
    looks, queue, metrics, told = census(gangs, most=1000, leads=False)
    queue.add(gangs.gang("g", 3)[0], 10.0)

    looks.look(20.0)

    assert pending(metrics) == {"active": 0, "gated": 1} and not told.groups
