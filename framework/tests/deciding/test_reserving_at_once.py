"""Members of a gang that plugins reserve at once have what they would have one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import SKIP, Cycle, PodInfo, Status, hookimpl, model, unschedulable
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.scheduling import give_back
from gangline.kube.resources import GPU_CLAIMS, GPU_NODE_STATUSES
from gangline.profile.reserving import Reserving
from gangline.testing.gangs import Gangs, fabric
from gangline.wire import custom_resources
from gangline_plugins.gpu.claim import GpuClaim, GpuClaimArgs
from gangline_plugins.gpu.devices import DeviceTable, device_table
from gangline_plugins.gpu.named_hardware import devices

ARGS = {"GpuClaim": GpuClaimArgs()}


class OneByOne:
    """Has to be asked about each member."""

    name = "OneByOne"

    @hookimpl
    def reserve(self) -> None:
        return None


class Noting:
    """Notes what it reserves and gives back."""

    name = "Noting"
    noted: ClassVar[list[str]]
    answer: ClassVar[str] = "function"

    @hookimpl
    def reserve(self, pod: PodInfo) -> Status | None:
        self.noted.append(pod.name)
        return None

    @hookimpl
    def reserve_all(self, pods: Sequence[PodInfo]) -> Callable[[], None] | Status | None:
        def reserve() -> None:
            self.noted.append("all")
            if self.answer == "raises":
                raise ValueError("lost count")

        return {"none": None, "skip": SKIP}.get(self.answer, reserve)

    @hookimpl
    def unreserve(self, pod: PodInfo) -> None:
        self.noted.append(f"not {pod.name}")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Noting.noted, Noting.answer = [], "function"


def held(table: DeviceTable, gangs: Gangs) -> list[Any]:
    """Which devices are in use, and of whom."""
    found = {uid: table.allocation(uid) for uid in sorted(gangs.cache.pods)}
    busy = table.columns.busy[: gangs.cache.nodes.size].tolist()
    return [busy, found, [each is not None and each.is_firm for each in found.values()]]


def outcome(gangs: Gangs, pods: Sequence[PodInfo]) -> list[Any]:
    """What becomes of a gang; then all its members are given back."""
    decided, table = gangs.decide(pods), device_table(gangs.cache)
    if isinstance(decided, GroupRejection):
        return [decided.message, held(table, gangs)]
    said: list[Any] = [
        (each.pod.name, each.node, each.cycle.annotations, dict(each.holds), each.pod.node_name)
        for each in decided.members
    ]
    said += [[pod.name for pod in decided.left], held(table, gangs)]
    for each in decided.members:
        give_back(gangs.runtime, gangs.cache, each.cycle, each.pod, each.node)
    return [*said, held(table, gangs), sorted(gangs.cache.pods), gangs.cache.nodes.requested.tolist()]


def reported(reports: Sequence[int], taken: Sequence[tuple[int, int]], *plugins: type[Any]) -> Gangs:
    """A cluster on which these nodes report their devices, and so many devices are in use."""
    gangs = Gangs(fabric(spines=1), GpuClaim, *plugins, args=ARGS)
    names = gangs.cache.nodes.names
    status = custom_resources.GpuNodeStatusStatus(total=8, devices=devices("hgx-h100"))
    for row in reports:
        meta, spec = model.ObjectMeta(name=names[row]), custom_resources.GpuNodeStatusSpec(names[row])
        gangs.cache.store(GPU_NODE_STATUSES).upsert(custom_resources.GpuNodeStatus(meta, spec, status))
    claim = custom_resources.GpuClaimSpec(devices=custom_resources.ClaimDevices(count=2))
    meta = model.ObjectMeta(name="two", namespace="default", uid="two")
    gangs.cache.store(GPU_CLAIMS).upsert(custom_resources.GpuClaim(metadata=meta, spec=claim))
    for row, gpus in taken:
        gangs.occupy(names[row], gpus)
    return gangs


ROWS = st.integers(0, 15)


@given(
    st.integers(2, 24),
    st.sampled_from([0, 1, 2, 4, 8]),
    st.integers(1, 24),
    st.lists(ROWS, unique=True),
    st.lists(st.tuples(ROWS, st.integers(1, 8))),
    st.booleans(),
)
def test_members_have_what_they_would_have_one_after_the_other(
    size: int, gpus: int, least: int, reports: list[int], taken: list[tuple[int, int]], has_claim: bool
) -> None:
    outcomes = []
    for plugins in ((), (OneByOne,)):
        gangs = reported(reports, taken, *plugins)
        annotations = {custom_resources.CLAIM: "two"} if has_claim and gpus in (0, 2) else {}
        outcomes.append(outcome(gangs, gangs.gang("a", size, gpus, min(least, size), annotations)))

    assert outcomes[0] == outcomes[1]


def test_members_are_reserved_at_once_where_each_plugin_can() -> None:
    gangs = Gangs(fabric(), Noting)

    gangs.place(gangs.gang("a", 3))

    assert Noting.noted == ["all"]


def test_a_plugin_that_has_nothing_to_do_is_not_called() -> None:
    Noting.answer = "skip"
    gangs = Gangs(fabric(), Noting)

    gangs.place(gangs.gang("a", 3))

    assert Noting.noted == []


@pytest.mark.parametrize(("answer", "plugins"), [("none", (Noting,)), ("function", (Noting, OneByOne))])
def test_members_come_one_after_the_other_if_a_plugin_cannot(answer: str, plugins: tuple[type[Any], ...]) -> None:
    Noting.answer = answer
    gangs = Gangs(fabric(), *plugins)

    gangs.place(gangs.gang("a", 3))

    assert Noting.noted == ["a-0", "a-1", "a-2"]


def test_a_plugin_that_fails_at_once_gives_all_members_back() -> None:
    Noting.answer = "raises"
    gangs = Gangs(fabric(), Noting, GpuClaim, args=ARGS)

    decided = gangs.decide(gangs.gang("a", 3))

    assert isinstance(decided, GroupRejection) and decided.is_error
    assert decided.message == "plugin Noting at reserve: ValueError: lost count"
    assert Noting.noted == ["all", "not a-0", "not a-1", "not a-2"]
    assert not gangs.cache.pods and not gangs.cache.nodes.requested.any()


def test_a_subclass_with_another_way_to_reserve_is_asked_about_each_member() -> None:
    class Careful(Noting):
        name = "Careful"

        @hookimpl
        def reserve(self, pod: PodInfo) -> Status | None:
            return unschedulable("not this one") if pod.name == "a-1" else None

    gangs = Gangs(fabric(), Careful)

    decided = gangs.decide(gangs.gang("a", 3))

    assert isinstance(decided, GroupRejection) and "not this one" in decided.message


def test_a_plugin_that_wraps_reserve_sees_each_member() -> None:
    class Wrapping:
        name = "Wrapping"

        @hookimpl(wrapper=True)
        def reserve(self, pod: PodInfo) -> Iterator[None]:
            Noting.noted.append(f"wrapped {pod.name}")
            yield

    gangs = Gangs(fabric(), Noting, Wrapping)

    decided = gangs.decide(gangs.gang("a", 2))

    assert isinstance(decided, GroupDecision)
    assert [each for each in Noting.noted if each.startswith("wrapped")] == ["wrapped a-0", "wrapped a-1"]


def test_a_plugin_is_not_asked_about_members_of_a_class_that_it_has_skipped() -> None:
    gangs = Gangs(fabric(), Noting)
    pods = gangs.gang("a", 2)
    reserving: Reserving = gangs.runtime.reserving
    asked: list[str] = []

    def skip(cycles: Sequence[Cycle], pods: Sequence[PodInfo], nodes: Sequence[str]) -> Status:
        asked.extend(pod.name for pod in pods)
        return SKIP

    (impl,) = (impl for impl in gangs.runtime.profile.points["reserve"] if impl.name == "Noting")
    msgspec.structs.force_setattr(impl, "at_once", skip)

    reserving.plan([Cycle(skipped={"Noting"}), Cycle()], pods, ["n", "n"])
    reserving.plan([Cycle(skipped={"Noting"})] * 2, pods, ["n", "n"])

    assert asked == ["a-1"]
