"""Whole gangs are placed as one decision, close together, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import CodeColumn, GroupAttempt, Int64Column, NodeView, PodInfo, Reason, hookimpl, model, unschedulable
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.status import Status
from gangline.testing import cluster, make_node
from gangline.testing.gangs import FALLBACK, GROUP, PREFERRED, REQUIRED, Gangs, fabric, leaves_of, spines_of
from gangline.wire.custom_resources import COMPLETION_INDEX
from gangline_plugins.counting.inter_pod_affinity import InterPodAffinity
from gangline_plugins.node_ports import NodePorts


def test_a_gang_takes_the_fewest_leaves() -> None:
    gangs = Gangs(fabric())

    placed = gangs.place(gangs.gang("a", 8))

    assert len(set(placed.values())) == 8
    assert len(leaves_of(placed)) == 2 and len(spines_of(placed)) == 1


def test_a_gang_fills_the_leaf_that_fits_best() -> None:
    gangs = Gangs(fabric(spines=1))
    for node in ("s0-l2-n0", "s0-l2-n1"):
        gangs.occupy(node, 8)

    placed = gangs.place(gangs.gang("a", 2))

    assert leaves_of(placed) == {"s0-l2": 2}


def test_neighbours_in_rank_are_neighbours_in_the_network() -> None:
    gangs = Gangs(fabric())

    placed = gangs.place(gangs.gang("a", 12))

    nodes = [placed[f"a-{i}"] for i in range(12)]
    assert nodes == sorted(nodes)


def test_a_required_level_holds_the_whole_gang_or_nothing_is_placed() -> None:
    gangs = Gangs(fabric(spines=1))

    decided = gangs.decide(gangs.gang("a", 5, annotations={REQUIRED: "leaf"}))

    assert isinstance(decided, GroupRejection)
    assert "no leaf of 4 holds 5 pods: the best one, spine-0/leaf-0, holds 4" in decided.message
    assert not gangs.cache.pods and not gangs.cache.nodes.requested.any()


def test_a_preferred_level_gives_way_to_the_next_wider_one() -> None:
    gangs = Gangs(fabric())

    small = gangs.place(gangs.gang("a", 3, annotations={PREFERRED: "leaf"}))
    large = gangs.place(gangs.gang("b", 10, annotations={PREFERRED: "leaf"}))

    assert len(leaves_of(small)) == 1
    assert len(spines_of(large)) == 1


def test_a_fallback_takes_wider_levels_as_time_passes() -> None:
    gangs = Gangs(fabric())
    pods = gangs.gang("a", 6, annotations={FALLBACK: "leaf,2m;spine,10m;any"})

    at_once = gangs.decide(pods, waited=0.0)
    later = gangs.place(pods, waited=121.0)

    assert isinstance(at_once, GroupRejection) and at_once.retry_after == pytest.approx(120.0)
    assert len(spines_of(later)) == 1


def test_small_pods_of_a_gang_share_nodes() -> None:
    gangs = Gangs(fabric(spines=1))

    placed = gangs.place(gangs.gang("a", 16, gpus=1))

    assert len(set(placed.values())) == 2 and len(leaves_of(placed)) == 1


def test_a_distributed_gang_takes_a_node_for_each_pod_and_all_leaves_in_turn() -> None:
    gangs = Gangs(fabric(spines=1))
    spread = {"topology.scheduler/placement-strategy": "distributed"}

    placed = gangs.place(gangs.gang("a", 4, gpus=1, annotations=spread))

    assert len(leaves_of(placed)) == 4


def test_an_elastic_gang_takes_what_there_is_beyond_its_minimum() -> None:
    gangs = Gangs(fabric(spines=1, leaves=1))

    decided = gangs.decide(gangs.gang("a", 6, min_member=2))

    assert isinstance(decided, GroupDecision)
    assert (len(decided.members), len(decided.left)) == (4, 2)


def test_later_members_join_the_first_ones() -> None:
    gangs = Gangs(fabric())
    first = gangs.gang("a", 2, min_member=2, annotations={REQUIRED: "leaf"})
    before = leaves_of(gangs.place(first))
    more = [gangs.pod("a", i, annotations={REQUIRED: "leaf"}) for i in (2, 3)]

    after = leaves_of(gangs.place(more))

    assert set(after) == set(before)


def test_members_that_differ_are_placed_together() -> None:
    gangs = Gangs(fabric())
    gangs.define("a", 5)
    pods = [gangs.pod("a", 0, gpus=1, annotations={REQUIRED: "leaf"})]
    pods += [gangs.pod("a", i, gpus=8, annotations={REQUIRED: "leaf"}) for i in range(1, 4)]
    pods += [gangs.pod("a", 4, gpus=2, annotations={REQUIRED: "leaf"})]

    placed = gangs.place(pods)

    assert len(leaves_of(placed)) == 1 and placed["a-0"] == placed["a-4"]


def test_members_that_say_different_things_are_refused() -> None:
    gangs = Gangs(fabric())
    pods = gangs.gang("a", 2, annotations={REQUIRED: "leaf"})
    pods[1] = gangs.pod("a", 1, annotations={REQUIRED: "spine"})

    decided = gangs.decide(pods)

    assert isinstance(decided, GroupRejection)
    assert "differently" in decided.message
    assert decided.group is not None


def test_members_of_different_schedulers_are_refused_and_the_group_is_told() -> None:
    gangs = Gangs(fabric())
    gangs.define("a", 2)
    members = [gangs.pod("a", 0, scheduler_name="one"), gangs.pod("a", 1, scheduler_name="other")]

    decided = gangs.decide(members)

    assert isinstance(decided, GroupRejection)
    assert decided.message == "the pods of gang default/a differ in schedulerName: one of a-0, other of a-1"
    assert decided.group is not None


def test_an_unknown_level_is_named_with_those_that_there_are() -> None:
    gangs = Gangs(fabric())

    decided = gangs.decide(gangs.gang("a", 2, annotations={REQUIRED: "row"}))

    assert isinstance(decided, GroupRejection)
    assert decided.message.startswith("unknown topology level row; the levels are: spine, leaf, host")


def test_a_member_that_may_not_be_reserved_takes_all_others_back() -> None:
    class Stubborn:
        name = "Stubborn"

        @hookimpl
        def reserve(self, pod: object) -> Status | None:
            return unschedulable("not the last one") if str(pod).endswith("a-3)") else None

    gangs = Gangs(fabric(spines=1), Stubborn)

    decided = gangs.decide(gangs.gang("a", 4))

    assert isinstance(decided, GroupRejection) and "not the last one" in decided.message
    assert not gangs.cache.pods and not gangs.cache.nodes.requested.any()
    assert not len(gangs.handle.waiting)


class Thrifty:
    """One pod to a node, or two for pods of which it has conceded that; told when each block begins and ends."""

    name = "Thrifty"
    reasons = (Reason("node(s) had their pod"),)
    said: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self._modest: set[str] = set()

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        return (self._held(nodes) >= (2 if pod.uid in self._modest else 1)).astype(np.uint8)

    @hookimpl
    def capacity(self, pod: PodInfo, nodes: NodeView) -> Int64Column:
        return np.maximum((2 if pod.uid in self._modest else 1) - self._held(nodes), 0)

    def _held(self, nodes: NodeView) -> Int64Column:
        return np.array([len(nodes.pods(place)) for place in range(len(nodes))], dtype=np.int64)

    @hookimpl
    def pod_group_concede(self, attempt: GroupAttempt) -> AbstractContextManager[None] | None:
        uids = {pod.uid for pod in attempt.pods}
        return self._conceding(uids) if len(uids) > 1 else None

    @contextmanager
    def _conceding(self, uids: set[str]) -> Iterator[None]:
        self.said.append("begin")
        self._modest |= uids
        yield
        self._modest -= uids
        self.said.append("end")


def test_a_gang_that_has_no_placement_is_tried_again_with_what_plugins_concede() -> None:
    Thrifty.said = []
    gangs = Gangs(cluster([make_node("a"), make_node("b")]), Thrifty)

    first = gangs.place(gangs.gang("first", 2, gpus=0))
    for pod in list(gangs.cache.pods.values()):
        gangs.cache.remove_pod(pod.uid)
    assert sorted(first.values()) == ["a", "b"] and not Thrifty.said

    second = gangs.place(gangs.gang("second", 4, gpus=0))
    assert sorted(second.values()) == ["a", "a", "b", "b"] and Thrifty.said == ["begin", "end"]

    rejected = gangs.decide(gangs.gang("third", 5, gpus=0))
    assert isinstance(rejected, GroupRejection) and Thrifty.said == ["begin", "end"] * 2


@pytest.mark.parametrize("when", ["begin", "end"])
def test_a_plugin_that_fails_to_concede_fails_the_gang(when: str) -> None:
    @contextmanager
    def broken() -> Iterator[None]:
        if when == "begin":
            raise ValueError("at the begin")
        yield
        raise ValueError("at the end")

    concede = hookimpl(lambda self, attempt: broken())
    plugin = type("Broken", (), {"name": "Broken", "pod_group_concede": concede})
    gangs = Gangs(cluster([make_node("a", gpus=8)]), plugin)

    rejected = gangs.decide(gangs.gang("g", 2))

    assert isinstance(rejected, GroupRejection) and rejected.is_error
    assert rejected.message == f"plugin Broken at pod_group_concede: ValueError: at the {when}"


def test_nobody_waits_at_permit_for_members_that_are_placed_in_the_same_cycle() -> None:
    gangs = Gangs(fabric())

    decided = gangs.decide(gangs.gang("a", 4))

    assert isinstance(decided, GroupDecision) and len(decided.members) == 4
    assert not any(member.holds for member in decided.members) and not len(gangs.handle.waiting)


SLICES = {
    "kueue.x-k8s.io/podset-slice-required-topology": "leaf",
    "kueue.x-k8s.io/podset-slice-size": "3",
}


def sliced(gangs: Gangs, size: int, gpus: int = 8) -> list[PodInfo]:
    """A gang of which each three consecutive ranks have to be in one leaf."""
    gangs.define("a", size)
    return [gangs.pod("a", i, gpus, {**SLICES, COMPLETION_INDEX: str(i)}) for i in range(size)]


def test_each_slice_of_ranks_is_in_one_leaf() -> None:
    gangs = Gangs(fabric(spines=1))

    placed = gangs.place(sliced(gangs, 12))

    for first in range(0, 12, 3):
        assert len(leaves_of({f"a-{i}": placed[f"a-{i}"] for i in range(first, first + 3)})) == 1


def test_slices_that_have_no_leaf_left_keep_the_whole_gang_out() -> None:
    gangs = Gangs(fabric(spines=1))
    for leaf in range(4):
        gangs.occupy(f"s0-l{leaf}-n0", 8)
    gangs.occupy("s0-l3-n1", 8)

    decided = gangs.decide(sliced(gangs, 12))

    assert isinstance(decided, GroupRejection)
    assert not gangs.cache.nodes.view().requested("nvidia.com/gpu")[2]


def test_a_slice_gives_way_when_another_one_finds_no_room_beside_it() -> None:
    gangs = Gangs(fabric(spines=1, leaves=2, nodes=4))
    gangs.define("a", 4)
    leader, *workers = sliced(gangs, 4, gpus=1)
    for node in ("s0-l0-n1", "s0-l0-n2", "s0-l0-n3"):
        gangs.occupy(node, 8)
    gangs.occupy("s0-l0-n0", 7)
    gangs.occupy("s0-l1-n0", 5)
    for node in ("s0-l1-n1", "s0-l1-n2", "s0-l1-n3"):
        gangs.occupy(node, 8)

    placed = gangs.place([leader, *workers])

    assert leaves_of(placed) == {"s0-l1": 3, "s0-l0": 1}


def test_pods_that_may_not_share_a_node_get_one_each() -> None:
    gangs = Gangs(fabric(spines=1), InterPodAffinity)
    apart = model.PodAffinity(
        required=[
            model.PodAffinityTerm(
                label_selector=model.LabelSelector(match_labels={GROUP: "a"}), topology_key="kubernetes.io/hostname"
            )
        ]
    )
    affinity = model.Affinity(pod_anti_affinity=apart)

    placed = gangs.place(gangs.gang("a", 4, gpus=1, affinity=affinity))

    assert len(set(placed.values())) == 4


def test_host_ports_are_taken_once_a_node() -> None:
    gangs = Gangs(fabric(spines=1), NodePorts)
    container = model.Container(
        name="main",
        resources=model.ResourceRequirements(requests={"nvidia.com/gpu": 1}),
        ports=[model.ContainerPort(container_port=80, host_port=80)],
    )

    placed = gangs.place(gangs.gang("a", 4, gpus=1, containers=[container]))

    assert len(set(placed.values())) == 4


@given(
    st.lists(st.integers(0, 8), min_size=32, max_size=32),
    st.integers(1, 12),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["leaf", "spine", ""]),
)
def test_a_gang_is_placed_exactly_when_one_domain_of_its_level_holds_it(
    used: list[int], size: int, gpus: int, level: str
) -> None:
    gangs = Gangs(fabric(spines=2, leaves=4, nodes=4))
    for row, amount in enumerate(used):
        if amount:
            gangs.occupy(gangs.cache.nodes.names[row], amount)
    fits = [(8 - amount) // gpus for amount in used]
    per = {"leaf": 4, "spine": 16, "": 32}[level]
    possible = any(sum(fits[i : i + per]) >= size for i in range(0, 32, per))

    decided = gangs.decide(gangs.gang("a", size, gpus, annotations={REQUIRED: level} if level else None))

    assert isinstance(decided, GroupDecision) == possible
    total = list(used)
    for member in decided.members if isinstance(decided, GroupDecision) else ():
        total[member.pod.row] += gpus
    assert total == gangs.cache.nodes.view().requested("nvidia.com/gpu").tolist() and max(total) <= 8


def test_a_gang_without_room_always_has_a_reason() -> None:
    gangs = Gangs(fabric(spines=1, leaves=1))

    decided = gangs.decide(gangs.gang("a", 5))

    assert isinstance(decided, GroupRejection)
    assert "4 of 5 pods fit on 4 nodes" in decided.message
    assert "4 of 4 nodes would do for one such pod" in decided.message
    assert "0/4 nodes are available" not in decided.message


def test_the_nodes_that_reject_members_are_counted_with_their_reasons() -> None:
    gangs = Gangs(fabric(spines=1, leaves=1))
    gangs.occupy("s0-l0-n0", 8)

    decided = gangs.decide(gangs.gang("a", 4))

    assert isinstance(decided, GroupRejection)
    assert "3 of 4 nodes would do for one such pod; 1 Insufficient nvidia.com/gpu" in decided.message


def test_the_room_of_pods_to_come_is_left_to_their_group_alone() -> None:
    gangs = Gangs(fabric(spines=1, leaves=1, nodes=2))
    mine, others = gangs.gang("train", 2), gangs.gang("other", 2)
    to_come = mine[0].anew()
    gangs.handle.fake_pending.nominations = {"s0-l0-n0": {to_come.uid: to_come}}

    assert isinstance(gangs.decide(others), GroupRejection)
    assert isinstance(gangs.decide(mine), GroupDecision)
