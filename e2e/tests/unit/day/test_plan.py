"""The plan of a day: the same seed gives the same, and everything that is promised is in it."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from gangline_e2e.day.fabric import Fabric
from gangline_e2e.day.objects import gang_of, paths
from gangline_e2e.day.plan import DIALECTS, LOAD, NIGHT, Day, losses
from gangline_e2e.day.plan import plan as make_plan
from gangline_e2e.day.size import size
from gangline_e2e.gangs import GANG, LEAF, SPINE

plan = cache(make_plan)
FULL, SMALL = (Fabric(), Day()), (Fabric(500, leaves=25, spines=5), Day(2000, 120))
CI = size({})
BOTH = pytest.mark.parametrize(("fabric", "day"), [FULL, SMALL], ids=["full", "small"])


@pytest.mark.parametrize(("fabric", "day"), [(Fabric(), Day(4000)), SMALL], ids=["full", "small"])
def test_a_seed_gives_one_day_and_another_seed_another(fabric: Fabric, day: Day) -> None:
    assert plan(day, fabric) == make_plan(day, fabric)
    assert plan(day, fabric) != plan(Day(day.pods, day.seconds, day.seed + 1), fabric)
    assert losses(day, fabric) == losses(day, fabric)


@BOTH
def test_a_day_has_about_as_many_pods_as_asked_for_of_every_kind(fabric: Fabric, day: Day) -> None:
    workloads = plan(day, fabric)
    gangs = [each for each in workloads if each.kind == "gang"]

    assert abs(sum(each.size for each in workloads) - day.pods) < 0.05 * day.pods
    assert {each.kind for each in workloads} == {"pod", "fraction", "claim", "gang"}
    assert {each.priority for each in workloads} == {"low", "normal", "high"}
    assert {each.dialect for each in gangs} == set(DIALECTS)
    assert {each.level for each in gangs} == {LEAF, SPINE, ""}
    assert any(each.part for each in gangs)
    assert sum(not each.is_possible for each in workloads) == 3
    assert len({each.name for each in workloads}) == len(workloads)


@pytest.mark.parametrize(("fabric", "day"), [FULL, (CI.fabric, CI.day)], ids=["full", "CI"])
def test_a_day_has_gangs_from_2_to_1024_pods_and_more_small_ones(fabric: Fabric, day: Day) -> None:
    sizes = Counter(each.size for each in plan(day, fabric) if each.kind == "gang")

    assert sizes[2] > sizes[4] > sizes[8] > sizes[1024]
    assert min(sizes) == 2
    assert max(sizes) == 1024


@BOTH
def test_what_comes_nearly_fills_the_cluster_and_nothing_comes_at_night(fabric: Fabric, day: Day) -> None:
    workloads = [each for each in plan(day, fabric) if each.is_possible]
    seconds = day.seconds * (1 - NIGHT)

    assert sum(each.gpu_seconds for each in workloads) == pytest.approx(
        LOAD * fabric.nodes * fabric.gpus * seconds, rel=0.01
    )
    assert [each.at_s for each in workloads] == sorted(each.at_s for each in workloads)
    assert max(each.at_s for each in workloads) <= seconds


@BOTH
def test_every_possible_gang_has_room_on_an_empty_cluster(fabric: Fabric, day: Day) -> None:
    rooms = {LEAF: fabric.leaf_size, SPINE: fabric.spine_size, "": fabric.nodes}

    for each in plan(day, fabric):
        nodes = -(-each.size // max(1, fabric.gpus // each.gpus))
        assert (nodes <= rooms[each.level] and each.gpus <= fabric.gpus) is each.is_possible


@BOTH
def test_objects_have_the_pods_that_the_workload_says(fabric: Fabric, day: Day) -> None:
    for each in plan(day, fabric):
        made = gang_of(each)
        assert len(made.pods) == each.size
        assert {pod["metadata"]["labels"][GANG] for pod in made.pods} == {each.name}
        assert len(paths("day", made.objects)) == len(made.objects)


@BOTH
def test_a_leaf_goes_as_a_whole_and_no_node_goes_twice(fabric: Fabric, day: Day) -> None:
    *single, leaf = losses(day, fabric)
    gone = Counter(number for loss in (*single, leaf) for number in loss.nodes)

    assert len({fabric.leaf(number) for number in leaf.nodes}) == 1
    assert len(leaf.nodes) == fabric.leaf_size
    assert set(gone.values()) == {1}


def test_leaves_and_spines_are_equal_and_nested() -> None:
    fabric = Fabric()
    leaves = Counter(fabric.leaf(number) for number in range(fabric.nodes))
    spines = Counter(fabric.spine(number) for number in range(fabric.nodes))

    assert set(leaves.values()) == {fabric.leaf_size} == {20}
    assert set(spines.values()) == {fabric.spine_size} == {500}


def test_the_environment_says_how_large_and_how_long() -> None:
    small, hour = size({"GANGLINE_DAY_NODES": "100", "GANGLINE_DAY_SEED": "3"}), size({"GANGLINE_DAY_MINUTES": "60"})

    assert (small.fabric.nodes, small.fabric.leaves, small.day.seed) == (100, 5, 3)
    assert (hour.day.seconds, hour.day.pods) == (3600, size({}).day.pods)
