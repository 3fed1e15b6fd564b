"""Gangs that are lost together: in which order they get what room there is."""

from __future__ import annotations

from gangline import resources
from gangline.testing.gangs import LEAF

from .recovery_cases import LossStory

SOON = 15.0


def test_of_two_gangs_that_one_leaf_loses_the_higher_priority_gets_the_room_and_the_other_one_waits() -> None:
    cluster = LossStory(leaves=3)

    async def story() -> None:
        cluster.add_job("low", 2, priority=1)
        cluster.add_job("high", 2, priority=9)
        await cluster.runs("low", 2)
        await cluster.runs("high", 2)
        (leaf,) = cluster.leaves_of("low")
        assert cluster.leaves_of("high") == {leaf}
        full, other = {f"l{n}" for n in range(3)} - {leaf}
        cluster.add_pods_of_one_node("full", 4, priority=9, nodeSelector={LEAF: f"leaf-{full[1:]}"})
        cluster.add_pods_of_one_node("half", 2, priority=9, nodeSelector={LEAF: f"leaf-{other[1:]}"})
        await cluster.runs("full", 4)
        await cluster.runs("half", 2)
        low = cluster.uids("low")
        cluster.fail(*(f"{leaf}-n{n}" for n in range(4)))
        await cluster.moved("high", 2, leaf, SOON)
        await cluster.until(lambda: bool(cluster.told_as("GangRecoveryWaits")), SOON)
        told = [each.regarding for each in cluster.list(resources.EVENTS) if each.reason == "GangRecoveryWaits"]
        waiting = {each.name for each in told if each is not None}
        assert waiting == set(cluster.bound("low")) and cluster.uids("low") == low
        for number, name in enumerate(sorted(cluster.bound("half"))):
            cluster.server.delete(resources.REPLICA_SETS, f"half-{number}", namespace="default")
            cluster.delete_pod(name)
        await cluster.moved("low", 2, leaf, 60.0)

    cluster.play(story)
