"""Gangs that lose nodes: what becomes of them, in virtual time, with controllers that make pods anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import resources
from gangline.simulate import SimulatedClient
from gangline.testing.gang_stories import ONE_LEAF

from .recovery_cases import LossStory

SOON = 10.0 + 5.0
"""The grace, and what pods take to end and to start."""


def test_a_lost_member_is_replaced_on_the_leaf_of_the_others_which_run_on() -> None:
    cluster = LossStory()

    async def story() -> tuple[set[str], set[str], float]:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before = cluster.uids("train")
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 0))
        await cluster.until(lambda: len(before - cluster.uids("train")) == 1)
        took = await cluster.runs("train", 3)
        assert cluster.leaves_of("train") == {leaf}
        await cluster.told("all lost members have nodes again")
        return before, cluster.uids("train"), took

    before, after, _ = cluster.play(story)

    assert len(before & after) == 2


def test_a_gang_whose_leaf_has_no_room_moves_as_a_whole() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.moved("train", 4, leaf, SOON)
        assert len(cluster.leaves_of("train")) == 1

    cluster.play(story)

    assert any("the gang moves as a whole" in note for note in cluster.notes())


@pytest.mark.parametrize("failed", [1, 3])
def test_no_new_member_joins_lost_ones_that_are_not_removed_yet(failed: int) -> None:
    cluster = LossStory()
    cluster.client = SimulatedClient(cluster.server, latency={"bind": 0.01, "delete": 8.0})

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        for number in range(failed):
            cluster.fail(cluster.node_of("train", number))
            await asyncio.sleep(0.2)
        await cluster.moved("train", 4, leaf, SOON + 30.0)

    cluster.play(story)

    assert not any("no room beside" in note or "that it needs are bound" in note for note in cluster.notes())


def test_the_members_of_a_deleted_node_are_replaced() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.lose(cluster.node_of("train", 2))
        await cluster.moved("train", 4, leaf, SOON)

    cluster.play(story)


@pytest.mark.parametrize(("policy", "stay"), [("replace", 2), ("restart", 0)])
def test_the_policy_says_whether_the_others_start_anew(policy: str, stay: int) -> None:
    cluster = LossStory()

    async def story() -> int:
        cluster.add_job("train", 3, {"gangline.dev/recovery": policy})
        await cluster.runs("train", 3)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 0))
        await cluster.until(lambda: before != cluster.uids("train") and len(cluster.bound("train")) == 3, SOON)
        return len(before & cluster.uids("train"))

    assert cluster.play(story) == stay


def test_with_the_policy_none_nothing_is_done() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 3, {"gangline.dev/recovery": "none"})
        await cluster.runs("train", 3)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 0))
        with pytest.raises(TimeoutError):
            await cluster.until(lambda: cluster.uids("train") != before, 120.0)

    cluster.play(story)


def test_an_unknown_policy_is_told_and_the_default_applies() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 3, {"gangline.dev/recovery": "always"})
        await cluster.runs("train", 3)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 0))
        await cluster.until(lambda: before != cluster.uids("train") and len(cluster.bound("train")) == 3, SOON)

    cluster.play(story)

    assert any('replace, restart or none, not "always"' in note for note in cluster.notes())


def test_a_node_that_comes_back_within_the_grace_loses_nothing() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before, node = cluster.uids("train"), cluster.node_of("train", 0)
        for _ in range(5):
            cluster.fail(node)
            with pytest.raises(TimeoutError):
                await cluster.until(lambda: cluster.uids("train") != before, 9.0)
            cluster.fail(node, status="True")
            with pytest.raises(TimeoutError):
                await cluster.until(lambda: cluster.uids("train") != before, 2.0)

    cluster.play(story)


def test_no_other_pod_takes_the_room_that_is_kept() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("room is kept on", SOON)
        cluster.add_pods_of_one_node("greedy", 8)
        await cluster.moved("train", 4, leaf, SOON)
        await cluster.runs("greedy", 3)  # on what the gang has left, without the lost node

    cluster.play(story)


def test_room_that_nobody_comes_for_is_given_to_others() -> None:
    cluster = LossStory(roomSeconds=30)

    async def story() -> None:
        notes = {**ONE_LEAF, "gangline.dev/recovery": "replace"}
        cluster.add_gang("alone", 4, notes)  # no controller makes these pods anew
        await cluster.runs("alone", 4)
        cluster.fail(cluster.node_of("alone", 2))
        await cluster.until(lambda: len(cluster.bound("alone")) == 0, SOON)
        cluster.add_pods_of_one_node("greedy", 7)
        await cluster.runs("greedy", 7, 40.0)
        await cluster.told("did not come in time")

    cluster.play(story)


def test_pods_that_nobody_would_make_anew_are_left_alone() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_gang("alone", 4)
        await cluster.runs("alone", 4)
        cluster.fail(cluster.node_of("alone", 2))
        with pytest.raises(TimeoutError):
            await cluster.until(lambda: len(cluster.bound("alone")) < 4, 120.0)

    cluster.play(story)


def test_a_gang_without_any_place_is_told_and_released_in_the_end() -> None:
    cluster = LossStory(leaves=1, releaseSeconds=100)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("it is tried again", SOON)
        assert len(cluster.bound("train")) == 4
        await cluster.until(lambda: not cluster.bound("train"), 140.0)

    cluster.play(story)

    assert any("no place was found in 100 s, so 3 members are released" in note for note in cluster.notes())


def test_a_gang_without_a_place_recovers_as_soon_as_there_is_one() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        cluster.add_pods_of_one_node("other", 4)
        await cluster.runs("other", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("it is tried again", SOON)
        for number, name in enumerate(sorted(cluster.bound("other"))):
            cluster.server.delete(resources.REPLICA_SETS, f"other-{number}", namespace="default")
            cluster.delete_pod(name)
        await cluster.moved("train", 4, leaf, 60.0)

    cluster.play(story)


def test_two_gangs_on_one_lost_leaf_find_places_in_the_order_of_their_priority() -> None:
    cluster = LossStory(leaves=3)

    async def story() -> dict[str, Any]:
        cluster.add_pods_of_one_node("other", 2)
        await cluster.runs("other", 2)
        cluster.add_job("low", 2, {"gangline.dev/recovery": "replace"}, priority=1)
        cluster.add_job("high", 4, priority=9)
        await cluster.runs("low", 2)
        await cluster.runs("high", 4)
        lost = cluster.node_of("high", 1), cluster.node_of("low", 1)
        before = cluster.bound("high")
        cluster.fail(*lost)
        await cluster.until(lambda: cluster.bound("high") != before and len(cluster.bound("high")) == 4, SOON)
        await cluster.until(
            lambda: len(cluster.bound("low")) == 2 and lost[1] not in cluster.bound("low").values(), SOON
        )
        return cluster.bound("high")

    assert len({node.split("-")[0] for node in cluster.play(story).values()}) == 1


def test_a_gang_whose_replacement_finds_its_leaf_full_moves_as_a_whole() -> None:
    cluster = LossStory(graceSeconds=5)

    async def story() -> None:
        cluster.add_job("train", 4, priority=0)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.cordon(cluster.node_of("train", 1))
        cluster.delete_pod(sorted(cluster.bound("train"))[1])
        await cluster.moved("train", 4, leaf, 30.0)

    cluster.play(story)


def test_while_most_nodes_are_not_ready_nothing_is_moved() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before = cluster.uids("train")
        cluster.fail(*(f"l{leaf}-n{n}" for leaf in range(2) for n in range(3)))
        with pytest.raises(TimeoutError):
            await cluster.until(lambda: cluster.uids("train") != before, 60.0)
        cluster.fail(*(f"l1-n{n}" for n in range(3)), status="True")
        await cluster.until(lambda: cluster.leaves_of("train") == {"l1"} or cluster.leaves_of("train") == {"l0"}, 60.0)

    cluster.play(story)


def test_a_member_on_an_ill_gpu_is_replaced() -> None:
    cluster = LossStory(more="GpuClaim")

    async def story() -> None:
        cluster.report_gpus(*(f"l{leaf}-n{n}" for leaf in range(2) for n in range(4)))
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before, node = cluster.uids("train"), cluster.node_of("train", 0)
        cluster.report_gpus(node, ill=(3,))
        await cluster.until(lambda: len(before & cluster.uids("train")) == 2, SOON)
        await cluster.runs("train", 3)
        assert node not in cluster.nodes("train")
        await cluster.told(f"GPU 3 of node {node} is unhealthy (XID 79)")

    cluster.play(story)


def test_a_gang_with_resource_claims_moves_too() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.offer_devices()
        claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        cluster.add_job("train", 4, resourceClaims=claims)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.moved("train", 4, leaf, SOON)

    cluster.play(story)


def test_a_node_that_has_failed_is_avoided_for_a_while() -> None:
    cluster = LossStory(leaves=1, graceSeconds=3600)

    async def story() -> None:
        cluster.fail("l0-n0")
        await asyncio.sleep(1.0)
        cluster.fail("l0-n0", status="True")
        await asyncio.sleep(1.0)
        cluster.add_pods_of_one_node("small", 3)
        await cluster.runs("small", 3)
        assert "l0-n0" not in cluster.nodes("small")

    cluster.play(story)
