"""Whole gangs are placed as one decision, close together, or not at all."""

from __future__ import annotations

import pytest

from gangline import hookimpl, unschedulable
from gangline.group_scheduling import GroupDecision, GroupRejection
from gangline.status import Status

from .gangs import FALLBACK, PREFERRED, REQUIRED, Gangs, fabric, leaves_of, spines_of


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


def test_the_last_member_lets_those_go_that_wait_at_permit() -> None:
    gangs = Gangs(fabric())

    decided = gangs.decide(gangs.gang("a", 4))

    assert isinstance(decided, GroupDecision)
    assert [bool(member.holds) for member in decided.members] == [True, True, True, False]
    assert all(waiting.verdict is not None and waiting.verdict.is_success for waiting in gangs.handle.waiting)
