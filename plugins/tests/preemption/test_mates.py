"""A victim that a gang cannot do without takes the whole gang along."""

from __future__ import annotations

from gangline import PodInfo
from gangline.testing.gangs import Gangs, fabric
from gangline_plugins.preemption.mates import with_mates


def running(gangs: Gangs, name: str, size: int, min_member: int) -> list[PodInfo]:
    """A gang that has its place."""
    pods = gangs.gang(name, size, gpus=1, min_member=min_member)
    gangs.place(pods)
    return pods


def test_a_gang_that_would_be_too_small_goes_as_a_whole() -> None:
    gangs = Gangs(fabric())
    pods = running(gangs, "a", size=4, min_member=4)

    assert {pod.name for pod in with_mates(gangs.handle, pods[1:2])} == {"a-0", "a-1", "a-2", "a-3"}


def test_a_member_beyond_the_minimum_goes_alone() -> None:
    gangs = Gangs(fabric())
    pods = running(gangs, "a", size=4, min_member=3)

    assert with_mates(gangs.handle, pods[:1]) == pods[:1]
    assert len(with_mates(gangs.handle, pods[:2])) == 4


def test_a_pod_on_its_own_takes_nobody_along() -> None:
    gangs = Gangs(fabric())
    running(gangs, "a", size=2, min_member=2)
    gangs.occupy("s0-l0-n0", 1)
    alone = [pod for pod in gangs.cache.pods.values() if pod.name.startswith("busy")]

    assert with_mates(gangs.handle, alone) == alone
