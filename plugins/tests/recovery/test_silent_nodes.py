"""Nodes that are silent for long: where a profile says when they count as dead, their members are replaced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import TooManyRequests, resources
from gangline.testing.gang_stories import ONE_LEAF
from gangline.testing.gangs import GROUP

from .recovery_cases import LossStory, gpu_container

SOON = 15.0


class StatefulGang(LossStory):
    """A gang of three pods of a StatefulSet, which creates no pod as long as one of that name is there."""

    async def start(self) -> None:
        """The gang, once it is bound."""
        self.add_group("train", 3)
        labels = {GROUP: "train"}
        template = {
            "metadata": {"labels": labels, "annotations": dict(ONE_LEAF)},
            "spec": {"schedulerName": "gangs", "containers": [gpu_container(8)]},
        }
        spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
        self.server.apply_manifest(
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "train"}, "spec": spec}
        )
        await self.runs("train", 3)


def test_a_member_of_a_stateful_set_on_a_silent_node_is_not_replaced_by_default() -> None:
    cluster = StatefulGang()

    async def story() -> None:
        await cluster.start()
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 1))
        await asyncio.sleep(600.0)
        assert len(before & cluster.uids("train")) == 2 == len(cluster.uids("train"))

    cluster.play(story)


@pytest.mark.parametrize("dead_after", [5.0, 40.0, 300.0], ids=["before-the-grace", "in-the-room", "after-the-room"])
def test_a_member_of_a_stateful_set_is_replaced_in_the_kept_room_when_its_node_counts_as_dead(
    dead_after: float,
) -> None:
    cluster = StatefulGang(leaves=1, deadAfterSeconds=dead_after)

    async def story() -> None:
        await cluster.start()
        before, lost = cluster.uids("train"), cluster.node_of("train", 1)
        cluster.fail(lost)
        await cluster.told("room is kept on", SOON)
        cluster.add_pods_of_one_node("other", 2)
        await asyncio.sleep(max(0.0, dead_after - SOON))
        assert not cluster.bound("other")
        await cluster.until(lambda: len(cluster.bound("train")) == 3 and lost not in cluster.nodes("train"), 2 * SOON)
        assert len(before & cluster.uids("train")) == 2
        await cluster.told("so it counts as dead")
        assert bool(cluster.told_as("GangMemberForced")) == (dead_after > 10.0)

    cluster.play(story)


def test_a_node_that_comes_back_before_it_counts_as_dead_is_believed() -> None:
    cluster = StatefulGang(deadAfterSeconds=60)

    async def story() -> None:
        await cluster.start()
        lost = cluster.node_of("train", 1)
        cluster.fail(lost)
        await asyncio.sleep(50.0)
        cluster.fail(lost, status="True")
        await cluster.runs("train", 3)
        await asyncio.sleep(60.0)
        assert not cluster.told_as("GangMemberForced")

    cluster.play(story)


def test_a_member_whose_node_comes_back_while_others_cannot_be_evicted_is_not_forced() -> None:
    waits = True

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return TooManyRequests(429, "TooManyRequests", "later", 1.0) if verb == "evict" and waits else None

    cluster = LossStory(faults=refuse, deadAfterSeconds=5)

    async def story() -> None:
        nonlocal waits
        cluster.add_job("train", 3, {**ONE_LEAF, "gangline.dev/recovery": "restart"})
        await cluster.runs("train", 3)
        (held, lost), *_ = cluster.bound("train").items()
        cluster.hold(held, "example.com/held")
        cluster.fail(lost)
        await cluster.told("so it counts as dead", SOON)
        cluster.fail(lost, status="True")
        await asyncio.sleep(5.0)
        waits = False
        await cluster.until(
            lambda: bool(cluster.get(resources.PODS, held, "default").metadata.deletion_timestamp), SOON
        )
        assert cluster.get(resources.PODS, held, "default").status.phase != "Failed"

    cluster.play(story)


def test_a_member_is_not_forced_where_the_api_server_has_the_node_as_ready_and_the_watch_has_not_told_yet() -> None:
    asked = []

    def comes_back(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "get" and resource is resources.NODES:
            asked.append(name)
            cluster.fail(name, status="True")
        return None

    cluster = LossStory(faults=comes_back, deadAfterSeconds=5)

    async def story() -> None:
        cluster.add_job("train", 3, ONE_LEAF)
        await cluster.runs("train", 3)
        (held, lost), *_ = cluster.bound("train").items()
        cluster.hold(held, "example.com/held")
        cluster.fail(lost)
        await cluster.until(lambda: bool(asked), SOON)
        await cluster.until(
            lambda: bool(cluster.get(resources.PODS, held, "default").metadata.deletion_timestamp), SOON
        )
        assert asked[0] == lost
        assert cluster.get(resources.PODS, held, "default").status.phase != "Failed"

    cluster.play(story)


def test_when_most_nodes_are_silent_none_counts_as_dead() -> None:
    cluster = StatefulGang(deadAfterSeconds=30)

    async def story() -> None:
        await cluster.start()
        before = cluster.uids("train")
        cluster.fail(*(f"l{leaf}-n{n}" for leaf in range(2) for n in range(3)))
        await asyncio.sleep(120.0)
        assert cluster.uids("train") == before

    cluster.play(story)


def test_a_pod_of_no_gang_is_never_forced() -> None:
    cluster = LossStory(deadAfterSeconds=20)

    async def story() -> None:
        cluster.add_pods_of_one_node("alone", 1)
        await cluster.runs("alone", 1)
        (name,), lost = cluster.bound("alone"), cluster.node_of("alone", 0)
        cluster.fail(lost)
        cluster.delete_pod(name)
        await asyncio.sleep(120.0)
        left = cluster.get(resources.PODS, name, "default")
        assert left.metadata.deletion_timestamp and left.status.phase != "Failed"

    cluster.play(story)
