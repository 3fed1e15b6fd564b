"""Gangs in trouble while they recover: nothing is evicted in vain, nothing waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import PatchKind, PodInfo, Status, Unavailable, hookimpl, resources
from gangline.simulate import SimulatedClient

from .recovery_cases import LossStory

SOON = 15.0
RESTART = {"gangline.dev/topology-required": "leaf", "gangline.dev/recovery": "restart"}


def test_a_gang_moves_though_a_member_is_held_on_its_old_node() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.hold(sorted(cluster.bound("train"))[0], "example.com/never")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.moved("train", 4, leaf, SOON)

    cluster.play(story)


def test_a_gang_that_restarts_goes_elsewhere_when_a_member_is_held_for_longer_than_its_room() -> None:
    cluster = LossStory(roomSeconds=30)

    async def story() -> None:
        cluster.add_job("train", 3, RESTART)
        await cluster.runs("train", 3)
        held = sorted(cluster.bound("train"))[0]
        cluster.hold(held, "example.com/never")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.until(lambda: held not in cluster.bound("train"), SOON)
        await cluster.runs("train", 3, 45.0)

    cluster.play(story)


def test_a_gang_that_restarts_moves_when_a_member_would_not_get_its_node_again() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 3, RESTART)
        await cluster.runs("train", 3)
        (leaf,) = cluster.leaves_of("train")
        cluster.cordon(cluster.node_of("train", 1))
        cluster.fail(cluster.node_of("train", 2))
        await cluster.moved("train", 3, leaf, SOON)

    cluster.play(story)


def test_a_gang_does_not_move_while_a_member_that_somebody_deleted_still_ends() -> None:
    cluster = LossStory(graceSeconds=5)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        before, (leaf,) = cluster.uids("train"), cluster.leaves_of("train")
        gone = sorted(cluster.bound("train"))[1]
        cluster.hold(gone, "example.com/saving")
        cluster.delete_pod(gone)
        await asyncio.sleep(60.0)
        cluster.hold(gone)
        await cluster.runs("train", 4, 10.0)
        assert cluster.leaves_of("train") == {leaf} and len(before & cluster.uids("train")) == 3

    cluster.play(story)


def test_a_gang_moves_when_a_member_that_somebody_deleted_never_ends() -> None:
    cluster = LossStory(graceSeconds=5, roomSeconds=30)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        gone = sorted(cluster.bound("train"))[1]
        cluster.hold(gone, "example.com/never")
        cluster.delete_pod(gone)
        await cluster.moved("train", 4, leaf, 60.0)

    cluster.play(story)


def test_nodes_that_come_back_one_after_the_other_after_most_were_not_ready_lose_nothing() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        before, names = cluster.uids("train"), [node.metadata.name for node in cluster.list_nodes()]
        cluster.fail(*names)
        await asyncio.sleep(120.0)
        for name in reversed(names):
            cluster.fail(name, status="True")
            await asyncio.sleep(1.0)
        assert cluster.uids("train") == before
        cluster.fail(cluster.node_of("train", 0))
        await cluster.until(lambda: cluster.uids("train") != before, SOON)

    cluster.play(story)


@pytest.mark.timeout(60)
def test_a_gang_that_waits_for_room_is_left_alone_once_its_policy_is_none() -> None:
    cluster = LossStory(leaves=1, releaseSeconds=100)

    async def story() -> None:
        cluster.add_job("train", 4, {})
        await cluster.runs("train", 4)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("it is tried again", SOON)
        notes = {"metadata": {"annotations": {"gangline.dev/recovery": "none"}}}
        cluster.server.patch(resources.JOBS, "train", notes, namespace="default", kind=PatchKind.MERGE)
        await asyncio.sleep(300.0)
        assert cluster.uids("train") == before and not cluster.told_as("GangReleased")

    cluster.play(story)


def test_a_gang_with_a_replacement_without_room_is_left_alone_once_its_policy_is_none() -> None:
    cluster = LossStory(graceSeconds=20)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        cluster.cordon(cluster.node_of("train", 1))
        cluster.delete_pod(sorted(cluster.bound("train"))[1])
        await cluster.until(lambda: any("moves as a whole if" in note for note in cluster.notes()))
        before = cluster.uids("train")
        notes = {"metadata": {"annotations": {"gangline.dev/recovery": "none"}}}
        cluster.server.patch(resources.JOBS, "train", notes, namespace="default", kind=PatchKind.MERGE)
        await asyncio.sleep(60.0)
        assert cluster.uids("train") == before

    cluster.play(story)


def test_a_gang_without_room_preempts_pods_of_a_lower_priority_beside_its_members() -> None:
    cluster = LossStory(more="GangPreemption")

    async def story() -> None:
        cluster.add_job("train", 3, priority=100)
        await cluster.runs("train", 3)
        before, (leaf,) = cluster.uids("train"), cluster.leaves_of("train")
        cluster.add_pods_of_one_node("other", 5, priority=0)
        await cluster.runs("other", 5)
        lost = cluster.node_of("train", 2)
        cluster.fail(lost)
        await cluster.until(lambda: len(cluster.bound("train")) == 3 and lost not in cluster.nodes("train"), SOON)
        assert cluster.leaves_of("train") == {leaf} and len(before & cluster.uids("train")) == 2
        assert len(cluster.bound("other")) == 4
        await cluster.told("all lost members have nodes again")

    cluster.play(story)


@pytest.mark.parametrize(
    "own", [{"priority": 0}, {"priority": 100, "preemptionPolicy": "Never"}], ids=["equal", "never"]
)
def test_a_gang_that_may_preempt_nobody_waits_with_its_lost_members(own: dict[str, Any]) -> None:
    cluster = LossStory(more="GangPreemption")

    async def story() -> None:
        cluster.add_job("train", 3, **own)
        await cluster.runs("train", 3)
        cluster.add_pods_of_one_node("other", 5, priority=0)
        await cluster.runs("other", 5)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("it is tried again")
        await asyncio.sleep(60.0)
        assert cluster.uids("train") == before

    cluster.play(story)


@pytest.mark.parametrize("killed", [10.5, 11.5, 12.5, 13.5, 14.5, 15.5])
def test_all_members_start_anew_though_the_scheduler_is_killed_meanwhile(killed: float) -> None:
    cluster = LossStory()
    cluster.client = SimulatedClient(cluster.server, latency={"evict": 2.0, "patch": 1.0, "delete": 1.0, "bind": 1.0})

    async def story() -> None:
        cluster.add_job("train", 3, RESTART)
        await cluster.runs("train", 3)
        before, lost = cluster.uids("train"), cluster.node_of("train", 2)
        cluster.fail(lost)
        await asyncio.sleep(killed)
        await cluster.restart()
        await cluster.until(lambda: not before & cluster.uids("train") and len(cluster.bound("train")) == 3, 60.0)
        assert len(cluster.leaves_of("train")) == 1 and lost not in cluster.nodes("train")

    cluster.play(story)


def test_members_that_cannot_be_released_are_not_told_so_again_and_again() -> None:
    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return Unavailable(503, "", "no") if verb in ("evict", "delete") else None

    cluster = LossStory(leaves=1, releaseSeconds=60, faults=refuse)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        lost = cluster.node_of("train", 2)
        cluster.fail(lost)
        await cluster.told("3 members are released", 90.0)
        for _ in range(20):  # each change of the node makes a round
            cluster.fail(lost)
            await asyncio.sleep(1.0)
        assert len(cluster.told_as("GangReleased")) == 3
        told = [each for each in cluster.list(resources.EVENTS) if each.reason == "GangReleased"]
        assert all(each.series is None for each in told)

    cluster.play(story)


class NoWord:
    """Has no verdict on the pods that are yet to be created."""

    name = "NoWord"

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        if pod.is_anew:
            raise ValueError("no word")
        return None


def test_a_gang_for_which_planning_fails_is_told_why_and_released_in_the_end() -> None:
    cluster = LossStory(more="NoWord", plugins=[NoWord], releaseSeconds=60)

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("no word; it is tried again within 30 s; the other members are released in 50 s", SOON)
        await cluster.until(lambda: not before & cluster.uids("train"), 120.0)

    cluster.play(story)


def test_members_of_a_deleted_node_are_marked_as_failed_which_some_jobs_wait_for() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        (name,) = [name for name, node in cluster.bound("train").items() if node == cluster.node_of("train", 0)]
        cluster.hold(name, "batch.kubernetes.io/job-tracking")
        cluster.lose(cluster.node_of("train", 0))
        await cluster.until(lambda: cluster.get(resources.PODS, name, "default").status.phase == "Failed", SOON)

    cluster.play(story)


def test_a_member_that_is_being_bound_is_no_member_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Some pods have changed meanwhile, so the queue has newer records of them than the columns."""
    cluster = LossStory()
    cluster.client = SimulatedClient(cluster.server, latency={"bind": 30.0})

    def names() -> set[str]:
        return {pod.metadata.name for pod in cluster.list(resources.PODS)}

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        deleted, failing, _ = sorted(before := names())
        cluster.delete_pod(deleted)
        await cluster.until(lambda: bool(names() - before), SOON)
        (new,) = names() - before
        await asyncio.sleep(1.0)
        for name in (new, failing):
            cluster.server.patch(resources.PODS, name, {"metadata": {"labels": {"seen": "yes"}}}, namespace="default")
        cluster.fail(cluster.bound("train")[failing])
        await cluster.until(lambda: failing not in cluster.bound("train") and len(cluster.bound("train")) == 3, 120.0)

    cluster.play(story)

    assert "Traceback" not in caplog.text
