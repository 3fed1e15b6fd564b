"""Nodes that are kept free for gangs that lose members, and lent to others until then."""

from __future__ import annotations

import asyncio
import logging

import pytest

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
