"""Nodes that are kept free for gangs that lose members, and lent to others until then."""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar

import msgspec
import numpy as np
import pytest

from gangline import ConfigError, Handle, PodGroup, PodInfo, Status, TopologyConstraint, hookimpl, model, resources
from gangline.testing import FakeHandle, Groups, cluster, make_node, make_pod
from gangline.testing.gang_stories import ONE_LEAF
from gangline_plugins.recovery.arguments import SparesArgs
from gangline_plugins.recovery.lending import Lending, Seeker
from gangline_plugins.recovery.spares import Spares

from .recovery_cases import LossStory, gpu_container

SPARE = [{"level": "leaf", "nodes": 1}]
SOON = 15.0


def test_a_node_of_each_leaf_is_kept_free() -> None:
    cluster = LossStory(spares=SPARE)

    async def story() -> None:
        cluster.add_pods_of_one_node("small", 8)
        await cluster.runs("small", 6)
        await cluster.told("node(s) were spares for gangs that lose members")
        assert set(cluster.nodes("small")) == {f"l{leaf}-n{n}" for leaf in range(2) for n in range(3)}

    cluster.play(story)


def test_a_gang_gets_no_spares_before_it_has_lost_a_member() -> None:
    cluster = LossStory(spares=SPARE)

    async def story() -> None:
        cluster.add_job("wide", 4)
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        await cluster.told("no placement")
        assert not cluster.bound("wide")

    cluster.play(story)


def test_a_lost_member_gets_the_spare_of_its_leaf() -> None:
    cluster = LossStory(spares=SPARE)

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        (leaf,) = cluster.leaves_of("train")
        cluster.add_pods_of_one_node("small", 5)
        await cluster.runs("small", 3)
        before, lost = cluster.uids("train"), cluster.node_of("train", 1)
        cluster.fail(lost)
        await cluster.until(lambda: len(cluster.bound("train")) == 3 and lost not in cluster.nodes("train"), SOON)
        assert len(before & cluster.uids("train")) == 2 and cluster.leaves_of("train") == {leaf}
        assert len(cluster.bound("small")) == 3

    cluster.play(story)


def test_pods_of_low_priority_use_spares_until_a_gang_needs_them() -> None:
    cluster = LossStory(spares=SPARE, lentBelowPriority=0)

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        (leaf,) = cluster.leaves_of("train")
        cluster.add_pods_of_one_node("small", 5)
        await cluster.runs("small", 3)
        cluster.add_pods_of_one_node("lent", 4, priority=-10)
        await cluster.runs("lent", 2)
        lost = cluster.node_of("train", 1)
        cluster.fail(lost)
        await cluster.until(lambda: len(cluster.bound("train")) == 3 and lost not in cluster.nodes("train"), SOON)
        assert cluster.leaves_of("train") == {leaf}
        assert len(cluster.bound("small")) == 3 and len(cluster.bound("lent")) == 1
        await cluster.told("1 pods leave lent spares")

    cluster.play(story)


def test_a_member_that_somebody_deleted_gets_a_lent_spare_too() -> None:
    cluster = LossStory(spares=SPARE, lentBelowPriority=0, graceSeconds=2)

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        (leaf,) = cluster.leaves_of("train")
        cluster.add_pods_of_one_node("lent", 5, priority=-10)
        await cluster.runs("lent", 5)
        cluster.cordon(cluster.node_of("train", 1))
        cluster.delete_pod(sorted(cluster.bound("train"))[1])
        await cluster.runs("train", 2)
        await cluster.runs("train", 3, SOON)
        assert cluster.leaves_of("train") == {leaf} and len(cluster.bound("lent")) == 4

    cluster.play(story)


def test_a_cordoned_node_is_no_spare() -> None:
    cluster = LossStory(leaves=1, spares=SPARE)

    async def story() -> None:
        cluster.cordon("l0-n3")
        cluster.add_pods_of_one_node("small", 4)
        await cluster.runs("small", 2)
        await cluster.told("node(s) were spares for gangs that lose members")
        await asyncio.sleep(30.0)
        assert len(cluster.bound("small")) == 2

    cluster.play(story)


def test_pods_on_lent_spares_cost_others_no_room() -> None:
    cluster = LossStory(leaves=1, spares=SPARE, lentBelowPriority=0)

    async def story() -> None:
        cluster.add_pods_of_one_node("lent", 1, priority=-10)
        await cluster.runs("lent", 1)
        cluster.add_pods_of_one_node("small", 4)
        await cluster.runs("small", 3)
        assert len(cluster.bound("lent")) == 1

    cluster.play(story)


def test_pods_of_low_priority_on_all_nodes_do_not_undo_the_spares() -> None:
    cluster = LossStory(leaves=1, spares=SPARE, lentBelowPriority=0, more="DefaultPreemption")

    async def story() -> None:
        cluster.add_pods_of_one_node("lent", 4, priority=-10)
        await cluster.runs("lent", 4)
        cluster.add_pods_of_one_node("small", 4)
        await cluster.runs("small", 3)
        await asyncio.sleep(30.0)
        assert len(cluster.bound("small")) == 3 and len(cluster.bound("lent")) == 1

    cluster.play(story)


def test_only_the_pods_that_a_gang_needs_gone_leave_a_lent_spare() -> None:
    cluster = LossStory(leaves=1, spares=SPARE, lentBelowPriority=0)

    async def story() -> None:
        cluster.add_job("train", 3, containers=[gpu_container(5)])
        await cluster.runs("train", 3)
        (spare,) = {node.metadata.name for node in cluster.list_nodes()} - set(cluster.nodes("train"))
        for number in range(8):
            place = {"nodeSelector": {"kubernetes.io/hostname": spare}, "priority": -10 - number}
            cluster.add_replica_set(f"lent-{number}", {"app": f"l{number}"}, containers=[gpu_container(1)], **place)
        await cluster.runs("lent", 8)
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("5 pods leave lent spares", SOON)
        await asyncio.sleep(10.0)
        left = {name.rsplit("-", 1)[0] for name in cluster.bound("lent")}
        assert len(cluster.bound("train")) == 3 and left == {f"lent-{number}" for number in range(3)}

    cluster.play(story)


def test_a_level_that_no_node_has_is_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster = LossStory(spares=[{"level": "leef", "nodes": 1}])

    async def story() -> None:
        cluster.add_pods_of_one_node("small", 8)
        await cluster.runs("small", 8)

    with caplog.at_level(logging.WARNING):
        cluster.play(story)

    said = [each.message for each in caplog.records if "spares" in each.message]
    assert said == ["Recovery keeps no spares of the level leef: no node has it; the levels are: spine, leaf, host"]


@pytest.mark.parametrize(("spares", "kept"), [({"gpus": 9}, 2), ({"gpus": 8}, 1), ({"gpus": 8, "nodes": 3}, 3)])
def test_spares_may_be_counted_in_gpus(spares: dict[str, int], kept: int) -> None:
    cluster = LossStory(leaves=1, spares=[{"level": "leaf", **spares}])

    async def story() -> None:
        cluster.add_pods_of_one_node("small", 4)
        await cluster.runs("small", 4 - kept)
        await cluster.told("node(s) were spares for gangs that lose members")
        await asyncio.sleep(10.0)
        assert len(cluster.bound("small")) == 4 - kept

    cluster.play(story)


def test_spares_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="nodes or gpus"):
        LossStory(spares=[{"level": "leaf"}]).play(lambda: asyncio.sleep(0.0))


@pytest.mark.parametrize(("priority", "left"), [(0, 2), (1, 3)], ids=["equal", "higher"])
def test_pods_with_a_bounded_runtime_use_spares_and_leave_them_to_a_gang_of_their_priority(
    priority: int, left: int
) -> None:
    cluster = LossStory(leaves=1, spares=SPARE, lentBelowRuntimeSeconds=3600)

    async def story() -> None:
        cluster.add_job("train", 1)
        cluster.add_job("team", 2, ONE_LEAF)
        await cluster.runs("t", 3)
        cluster.add_pods_of_one_node("long", 1, activeDeadlineSeconds=7200)
        cluster.add_pods_of_one_node("short", 1, activeDeadlineSeconds=600, priority=priority)
        await cluster.runs("short", 1)
        assert not cluster.bound("long")
        cluster.fail(cluster.node_of("team", 0))
        await cluster.told("1 pods leave lent spares" if left == 2 else "it is tried again", SOON)
        await asyncio.sleep(SOON)
        assert len(cluster.bound("short")) == left - 2

    cluster.play(story)


class Peek:
    """Does nothing, and shows what plugins are given."""

    name = "Peek"

    def __init__(self, args: None, handle: Handle) -> None:
        self.made.append(handle)

    made: ClassVar[list[Handle]] = []

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        return None


def test_of_more_pods_than_are_looked_at_those_in_the_domain_of_the_gang_come_first() -> None:
    cluster = LossStory(leaves=3, more="Peek", plugins=[Peek])
    Peek.made.clear()

    async def story() -> None:
        cluster.add_pods_of_one_node("lent", 12, priority=-10)
        await cluster.runs("lent", 12)
        (handle, *_) = Peek.made
        (group,) = {PodGroup("default", "train", "job", 3, topology=TopologyConstraint("leaf"))}
        everywhere = handle.nodes.full(True)
        everywhere[handle.nodes.row_of("l2-n0")] = False
        lending = Lending(handle, 0, None, most=9)
        for row, leaves in (
            (handle.nodes.row_of("l1-n3"), "l1 l1 l1 l1 l0 l0 l0 l0 l2"),
            (None, "l0 l0 l0 l0 l1 l1 l1 l1 l2"),
        ):
            seeker = Seeker(group, 1, everywhere, [] if row is None else [row])
            assert [pod.node_name[:2] for pod in lending.below(1, seeker)] == leaves.split()

    cluster.play(story)


def test_a_gang_of_low_priority_takes_no_lent_spare_from_pods_that_are_no_less_important() -> None:
    cluster = LossStory(leaves=1, spares=SPARE, lentBelowPriority=0)

    async def story() -> None:
        cluster.add_job("train", 3, priority=-10)
        await cluster.runs("train", 3)
        cluster.add_pods_of_one_node("lent", 1, priority=-10)
        await cluster.runs("lent", 1)
        cluster.fail(cluster.node_of("train", 1))
        await cluster.told("it is tried again", SOON)
        assert len(cluster.bound("lent")) == 1 and not cluster.told_as("GangRecovering")

    cluster.play(story)


@pytest.mark.parametrize("kind", ["ReplicaSet", "Deployment"])
def test_a_node_is_a_lent_spare_no_more_once_an_owner_of_its_pods_says_a_longer_runtime(kind: str) -> None:
    said = {"gangline.dev/max-runtime": "10m"}
    deployment = model.PartialObjectMetadata(model.ObjectMeta("short", "default", uid="d"))
    above = model.OwnerReference("Deployment", "short", "d", "apps/v1", True)
    replica_set = model.ReplicaSet(model.ObjectMeta("short-1", "default", uid="r", owner_references=[above]))
    owner = model.OwnerReference("ReplicaSet", "short-1", "r", "apps/v1", True)
    nodes = [make_node(name, gpus=8, labels={"topology.gangline.dev/leaf": "l"}) for name in "ab"]
    pod = make_pod("p", node="a", gpus=8)
    pod.metadata.owner_references = [owner]
    cache = cluster(nodes, [pod])
    store = cache.store(resources.REPLICA_SETS if kind == "ReplicaSet" else resources.DEPLOYMENTS)
    told = replica_set if kind == "ReplicaSet" else deployment
    cache.store(resources.DEPLOYMENTS).upsert(deployment)
    cache.store(resources.REPLICA_SETS).upsert(replica_set)
    handle = FakeHandle(cache, grouping=Groups(cache))
    spares = Spares(handle, [SparesArgs("leaf", 2)], Lending(handle, None, 3600.0))
    everywhere = handle.nodes.full(True)

    def kept() -> int:
        return int(np.count_nonzero(spares.kept(everywhere)))

    for notes, number in (({}, 1), (said, 2), ({}, 1), ({"gangline.dev/max-runtime": "2h"}, 1), (said, 2)):
        metadata = msgspec.structs.replace(told.metadata, annotations=notes)
        store.upsert(msgspec.structs.replace(told, metadata=metadata))
        assert kept() == number, notes
        store.upsert(msgspec.structs.replace(told, metadata=metadata))
        assert kept() == number


def test_an_owner_that_is_seen_after_its_pods_have_been_judged_counts() -> None:
    owner = model.OwnerReference("ReplicaSet", "short", "r", "apps/v1", True)
    pod = make_pod("p", node="a", gpus=8)
    pod.metadata.owner_references = [owner]
    cache = cluster([make_node("a", gpus=8, labels={"topology.gangline.dev/leaf": "l"})], [pod])
    handle = FakeHandle(cache, grouping=Groups(cache))
    spares = Spares(handle, [SparesArgs("leaf", 1)], Lending(handle, None, 3600.0))

    assert not spares.kept(handle.nodes.full(True)).any()
    metadata = model.ObjectMeta("short", "default", uid="r", annotations={"gangline.dev/max-runtime": "10m"})
    cache.store(resources.REPLICA_SETS).upsert(model.ReplicaSet(metadata))
    assert spares.kept(handle.nodes.full(True)).all()
