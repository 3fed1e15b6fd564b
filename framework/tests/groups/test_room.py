"""The parts of a group are not tried on the columns where numbers say already that they do not all have room."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from gangline import model
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.state.pods import PodInfo
from gangline.testing import make_node, make_pod
from gangline.testing.gangs import GROUP, Gangs, fabric, leaves_of
from gangline.wire.custom_resources import COMPLETION_INDEX
from gangline_plugins.node_ports import NodePorts
from gangline_plugins.node_resources_fit import Args

SLICES = {"kueue.x-k8s.io/podset-required-topology": "spine", "kueue.x-k8s.io/podset-slice-required-topology": "leaf"}


def sliced(gangs: Gangs, size: int, slice_size: int, gpus: int = 8, port: int = 0) -> list[PodInfo]:
    """A gang in slices of which no two members are alike."""
    gangs.define("a", size)
    return [gangs.cache.record(member(n, slice_size, gpus, port)) for n in range(size)]


def member(n: int, slice_size: int, gpus: int, port: int) -> model.Pod:
    note = {**SLICES, "kueue.x-k8s.io/podset-slice-size": str(slice_size), COMPLETION_INDEX: str(n)}
    made = make_pod(f"a-{n}", gpus=gpus, cpu=f"{100 + n}m", labels={GROUP: "a"}, annotations=note)
    made.spec.containers[0].ports = [model.ContainerPort(port, port)] if port else []
    return made


def test_slices_of_unlike_members_for_which_there_are_too_few_leaves_are_refused_by_numbers() -> None:
    gangs = Gangs(fabric(spines=4, leaves=8, nodes=6))
    pods = sliced(gangs, 36, 4)  # nine slices, on spines of eight leaves with room for six members
    started = time.thread_time()

    decided = gangs.decide(pods)

    assert isinstance(decided, GroupRejection) and not decided.is_late
    assert "there is room for 8 of 9 parts of the group that need a leaf each" in decided.message
    assert time.thread_time() - started < 1.0


def test_as_many_slices_as_there_are_leaves_find_them() -> None:
    gangs = Gangs(fabric(spines=2, leaves=8, nodes=6))

    placed = gangs.place(sliced(gangs, 32, 4))

    assert set(leaves_of(placed).values()) == {4} and len(leaves_of(placed)) == 8


def test_a_resource_that_filters_do_not_count_limits_no_part() -> None:
    thing = "example.com/thing"
    gangs = Gangs(fabric(spines=1, leaves=2, nodes=1), args={"NodeResourcesFit": Args(ignored_resources=[thing])})
    gangs.cache.upsert_node(make_node("counts", gpus=0, resources={thing: 1}))
    gangs.define("a", 8)
    pods = [member(n, 4, gpus=2, port=0) for n in range(8)]
    for pod in pods:
        wanted = pod.spec.containers[0].resources
        assert wanted is not None and wanted.requests is not None
        wanted.requests |= {thing: 1, "cpu": 1}

    placed = gangs.place([gangs.cache.record(pod) for pod in pods])

    assert sorted(leaves_of(placed).values()) == [4, 4]


def test_what_only_filters_can_tell_is_tried_no_longer_than_the_deadline_allows() -> None:
    gangs = Gangs(fabric(spines=3, leaves=8, nodes=6), NodePorts)
    pods = sliced(gangs, 36, 4, gpus=4, port=80)  # by numbers two members go on a node, by their port one does
    started = time.thread_time()

    decided = gangs.decide(pods)

    assert isinstance(decided, GroupRejection)
    assert time.thread_time() - started < 5.5
    assert not gangs.cache.nodes.requested.any()


@given(
    spare=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    parts=st.integers(1, 4),
    size=st.integers(1, 4),
    gpus=st.sampled_from([1, 3, 4, 8]),
)
def test_numbers_never_refuse_what_has_room(spare: list[int], parts: int, size: int, gpus: int) -> None:
    gangs = Gangs(fabric(spines=1, leaves=4, nodes=3))
    for leaf, busy in enumerate(spare):
        for node in range(busy):
            gangs.occupy(f"s0-l{leaf}-n{node}", 8)
    each = 8 // gpus
    fitting = sum((3 - busy) * each // size for busy in spare)

    decided = gangs.decide(sliced(gangs, parts * size, size, gpus))

    assert isinstance(decided, GroupDecision) == (parts <= fitting)
