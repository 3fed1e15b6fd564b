"""Groups that say they are larger than any are refused, and large ones are kept once, not once for each pod."""

from __future__ import annotations

import gc
import time
import tracemalloc

import pytest

from gangline.api.pod_group import Membership, SubGroup, TopologyConstraint
from gangline.groups import forming
from gangline.groups.forming import MOST_PARTS, slices
from gangline.kube.resources import JOBS, SCHEDULER_PLUGINS_POD_GROUPS

from .stories import World

LWS = "leaderworkerset.sigs.k8s.io"


def replica(world: World, rank: int, size: int, subgroup: int) -> Membership:
    """The membership of one pod of a replica of a LeaderWorkerSet, which no object describes."""
    labels = {"name": "l", "group-index": "0", "group-key": "k", "worker-index": str(rank)}
    cuts = {"size": str(size), "subgroup-size": str(subgroup)}
    found = world.groups.of(
        world.pod(
            f"l-0-{rank}",
            labels={f"{LWS}/{key}": value for key, value in labels.items()},
            annotations={f"{LWS}/{key}": value for key, value in cuts.items()},
        )
    )
    assert isinstance(found, Membership), found
    return found


@pytest.mark.parametrize("members", [16_385, 2_000_000_000])
def test_a_group_of_more_members_than_any_has_is_a_problem(members: int) -> None:
    world = World()
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": members})
    job = world.put(JOBS, "j", {"parallelism": members, "completions": members, "completionMode": "Indexed"})
    says = f"{members}: a group has at most 16384 members"

    assert says in world.problem(world.pod("p-0", labels={"scheduling.x-k8s.io/pod-group": "g"}))
    assert says in world.problem(world.pod("p-1", owner=job))


def test_all_pods_of_a_replica_share_one_group() -> None:
    world = World()
    first = replica(world, 0, 1000, 1)
    tracemalloc.start()
    started, before = time.thread_time(), tracemalloc.get_traced_memory()[0]

    others = [replica(world, rank, 1000, 1) for rank in range(1, 200)]

    seconds, kept = time.thread_time() - started, tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert all(other.group is first.group for other in others)
    assert len({other.subgroup for other in others}) == 199
    assert seconds < 2.0 and kept < 4 * 2**20  # a thousand sub-groups for each pod would be 20 MiB


def test_pods_of_a_replica_that_contradict_each_other_are_in_different_groups() -> None:
    world = World()

    assert replica(world, 0, 8, 2).group != replica(world, 1, 8, 4).group


def parts() -> int:
    """How many subgroups the collector knows: all that were made since this test has begun."""
    return sum(type(each) is SubGroup for each in gc.get_objects())


def test_slices_that_are_remembered_take_a_bounded_amount_of_memory() -> None:
    rack = TopologyConstraint("rack")

    tracemalloc.start()
    slices("0/", MOST_PARTS, MOST_PARTS, 1, rack)
    each, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    before = parts()

    for number in range(1, 65):
        slices(f"{number}/", MOST_PARTS, MOST_PARTS, 1, rack)

    kept = (parts() - before) / MOST_PARTS * each
    assert kept < 6 * 2**20  # all of them are 8 MiB
    assert slices("64/", MOST_PARTS, MOST_PARTS, 1, rack) is slices("64/", MOST_PARTS, MOST_PARTS, 1, rack)
    assert forming.MOST_MEMBERS >= MOST_PARTS
