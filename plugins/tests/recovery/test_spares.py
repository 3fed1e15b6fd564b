"""Nodes that are kept free for gangs that lose members, and lent to others until then."""

from __future__ import annotations

from .recovery_cases import LossStory

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
