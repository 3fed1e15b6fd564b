"""Schedulers that are killed at the failpoints of a recovery, before and after each of its writes, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from gangline.simulate import InMemoryServer, SimulatedClient
from gangline.testing.gang_stories import ONE_LEAF

from .recovery_cases import LossStory, gpu_container

HALF = [gpu_container(4)]
WRITES = {"eviction": "evict", "removal": "delete"}


class DyingClient(SimulatedClient):
    """Makes a write that is given by its number, or does not; nothing of that process is written after that."""

    def __init__(self, server: InMemoryServer, verb: str, number: int, is_made: bool) -> None:
        super().__init__(server, latency={"bind": 0.01})
        self._of_death = verb, number
        self._is_made = is_made
        self._writes: Counter[str] = Counter()
        self.is_dead = asyncio.Event()

    async def _call(self, verb: str, resource: Any, name: str, act: Any) -> Any:
        if self.is_dead.is_set():
            await asyncio.sleep(3600.0)
        self._writes[verb] += name.startswith("train")
        if (verb, self._writes[verb]) != self._of_death:
            return await super()._call(verb, resource, name, act)
        if self._is_made:
            await super()._call(verb, resource, name, act)
        self.is_dead.set()
        await asyncio.sleep(3600.0)


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
        client = cluster.client = DyingClient(cluster.server, WRITES[write], number, is_made)
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
