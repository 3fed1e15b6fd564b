"""Gangs whose members disruption budgets protect: nothing is evicted that does not help."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import Conflict, TooManyRequests, resources

from .recovery_cases import LossStory

SOON = 15.0
RESTART = {"gangline.dev/topology-required": "leaf", "gangline.dev/recovery": "restart"}


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_gang_moves_only_when_budgets_let_all_its_members_go(allowed: int) -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        before, (leaf,) = cluster.uids("train"), cluster.leaves_of("train")
        cluster.add_budget("train", allowed)
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("the gang would move as a whole, but disruption budgets protect pod default/train-")
        await asyncio.sleep(100.0)
        assert cluster.uids("train") == before
        cluster.server.delete(resources.PDBS, "train", namespace="default")
        await cluster.moved("train", 4, leaf, 40.0)

    cluster.play(story)


def test_a_gang_that_two_budgets_cover_is_not_evicted_in_vain() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        for name in ("one", "two"):
            cluster.add_budget("train", 9, name)
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("the gang would move as a whole, but disruption budgets protect pod default/train-")
        assert not cluster.told_as("GangRecovering")

    cluster.play(story)


def test_members_that_a_budget_protects_are_not_released_and_nobody_says_so() -> None:
    cluster = LossStory(leaves=1, releaseSeconds=60)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        before = cluster.uids("train")
        cluster.add_budget("train", 1)
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("are released in 50 s, unless disruption budgets protect pod default/train-")
        await asyncio.sleep(200.0)
        assert cluster.uids("train") == before and not cluster.told_as("GangReleased")

    cluster.play(story)


def test_a_gang_that_should_restart_gets_its_lost_members_back_though_a_budget_protects_the_others() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 3, RESTART)
        await cluster.runs("train", 3)
        before, lost = cluster.uids("train"), cluster.node_of("train", 2)
        cluster.add_budget("train", 1)
        cluster.fail(lost)
        await cluster.until(lambda: len(cluster.bound("train")) == 3 and lost not in cluster.nodes("train"), SOON)
        assert len(before & cluster.uids("train")) == 2
        await cluster.told("the others run on, because disruption budgets protect")
        await cluster.told("all lost members have nodes again")

    cluster.play(story)


def test_an_eviction_that_conflicts_for_too_long_is_no_success() -> None:
    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return Conflict(409, "Conflict", "the object has been modified") if verb == "evict" else None

    cluster = LossStory(roomSeconds=20, faults=refuse)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("may not be evicted: the object has been modified", 60.0)
        assert cluster.uids("train") == before

    cluster.play(story)


def test_an_eviction_that_is_refused_for_too_long_is_told_once_and_nobody_else_waits_for_the_room() -> None:
    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return TooManyRequests(429, "", "not now") if verb == "evict" else None

    cluster = LossStory(roomSeconds=20, faults=refuse)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("may not be evicted", 60.0)
        assert cluster.uids("train") == before
        cluster.add_pods_of_one_node("other", 4)
        await cluster.runs("other", 4, 10.0)
        assert len(set(cluster.told_as("GangRecoveryFailed"))) == 1

    cluster.play(story)
