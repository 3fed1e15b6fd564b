"""Like members that are placed at once go where they would go one after the other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline import SKIP, Handle, PodInfo, Status, hookimpl, unschedulable
from gangline.deciding.group_decisions import GroupDecision
from gangline.testing.gangs import Gangs, fabric
from gangline_plugins.gpu.claim import GpuClaim, GpuClaimArgs


class Remembering:
    """Remembers something of each pod, so members are placed one after the other."""

    name = "Remembering"

    @hookimpl
    def pre_filter(self) -> None:
        return None

    @hookimpl
    def reserve(self) -> None:
        return None


class Picky:
    """Skips all pods before filters, rejects one when it comes to be placed, and has something to do afterwards."""

    name = "Picky"
    rejected = ""

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        return unschedulable("not this one") if pod.name == self.rejected else SKIP

    @hookimpl
    def reserve(self) -> None:
        return None


class Number:
    """The number of pods that have a node."""

    def __init__(self) -> None:
        self.pods = 0

    def add(self, pod: PodInfo, row: int) -> None:
        self.pods += 1

    def remove(self, pod: PodInfo, row: int) -> None:
        self.pods -= 1


class AtMostTwo:
    """Skips pods until two have a node, and rejects all others; has something to do after the filters."""

    name = "AtMostTwo"

    def __init__(self, handle: Handle) -> None:
        self._number = handle.state.tracker(Number)

    @hookimpl
    def pre_filter(self) -> Status:
        return SKIP if self._number.pods < 2 else unschedulable("two are enough")

    @hookimpl
    def reserve(self) -> None:
        return None


def outcome(gangs: Gangs, size: int, gpus: int, least: int) -> tuple[Any, ...]:
    """What becomes of a gang, and the columns afterwards."""
    decided = gangs.decide(gangs.gang("a", size, gpus, least))
    placed = [(each.pod.name, each.node) for each in decided.members] if isinstance(decided, GroupDecision) else []
    left = [pod.name for pod in decided.left] if isinstance(decided, GroupDecision) else [decided.message]
    nodes = gangs.cache.nodes
    requested = nodes.view().requested("nvidia.com/gpu").tolist()
    return placed, left, requested, [sorted(on) for on in nodes.pods_on], sorted(gangs.cache.pods)


@given(
    st.integers(2, 40),
    st.integers(1, 8),
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 31), st.integers(1, 8))),
)
def test_members_go_where_they_would_go_one_after_the_other(
    size: int, gpus: int, least: int, occupied: list[tuple[int, int]]
) -> None:
    outcomes = []
    for plugins in ((GpuClaim,), (GpuClaim, Remembering)):
        gangs = Gangs(fabric(), *plugins, args={"GpuClaim": GpuClaimArgs()})
        for number, taken in occupied:
            gangs.occupy(f"s{number // 16}-l{number // 4 % 4}-n{number % 4}", taken)
        outcomes.append(outcome(gangs, size, gpus, min(least, size)))

    assert outcomes[0] == outcomes[1]


def test_a_member_that_a_plugin_rejects_among_others_stays_without_a_node() -> None:
    gangs = Gangs(fabric(), Picky)
    Picky.rejected = "a-2"

    placed, left, *_ = outcome(gangs, 4, 8, 3)

    assert [name for name, _ in placed] == ["a-0", "a-1", "a-3"] and left == ["a-2"]


def test_a_plugin_that_is_asked_about_each_member_sees_the_members_before_it_placed() -> None:
    placed, left, *_ = outcome(Gangs(fabric(), AtMostTwo), 4, 8, 2)

    assert [name for name, _ in placed] == ["a-0", "a-1"] and left == ["a-2", "a-3"]
