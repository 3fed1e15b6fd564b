"""Schedulers that are killed at the failpoints of a recovery, before and after each of its writes, in virtual time."""

from __future__ import annotations

import pytest

from gangline.simulate import SimulatedClient
from gangline.testing.gang_stories import ONE_LEAF

from ..dying_client import DyingClient
from .recovery_cases import LossStory, gpu_container

HALF = [gpu_container(4)]
WRITES = {"eviction": "evict", "removal": "delete"}


@pytest.mark.parametrize("is_made", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("write", "number", "policy"),
    [
        ("removal", 1, "replace"),
        ("removal", 2, "replace"),
        ("eviction", 1, "restart"),
        ("eviction", 2, "restart"),
        ("removal", 1, "restart"),
        ("removal", 2, "restart"),
    ],
)
def test_the_next_scheduler_completes_a_recovery_in_which_the_last_one_was_killed(
    write: str, number: int, policy: str, is_made: bool
) -> None:
    cluster = LossStory()

    async def story() -> None:
        client = cluster.client = DyingClient(cluster.server, "train", WRITES[write], number, is_made)
        await cluster.restart()
        cluster.add_job("train", 4, {**ONE_LEAF, "gangline.dev/recovery": policy}, containers=HALF)
        await cluster.runs("train", 4)
        before, lost = cluster.uids("train"), cluster.node_of("train", 3)
        there = [node for node in cluster.nodes("train") if node != lost]
        cluster.fail(lost)
        await client.is_dead.wait()
        cluster.client = SimulatedClient(cluster.server, latency={"bind": 0.01})
        await cluster.restart()
        cluster.add_pods_of_one_node("other", 2)
        await cluster.until(lambda: len(cluster.bound("train")) == 4 and lost not in cluster.nodes("train"), 40.0)
        stayed = len(before & cluster.uids("train"))
        assert stayed == (len(there) if policy == "replace" else 0) and len(cluster.leaves_of("train")) == 1

    cluster.play(story)
