"""Gangs from queue to binding on the in-memory API server: whole, or not at all, whatever fails."""

from __future__ import annotations

from typing import Any

from gangline.errors import Conflict, Unavailable
from gangline.kube.resources import PODS, Resource
from gangline.loop.scheduler import Scheduler
from gangline.testing import make_pod
from gangline.testing.gang_stories import GangCluster
from gangline.testing.gangs import GROUP, REQUIRED


def test_a_gang_is_bound_once_all_its_pods_are_there() -> None:
    cluster = GangCluster()
    cluster.add_group("a", 4)
    cluster.add_pods("a", 0, 1, 2)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["gated"] == 3)
            assert not cluster.bound("a")
            cluster.add_pods("a", 3)
            await cluster.until(lambda: len(cluster.bound("a")) == 4)
            await cluster.until(lambda: cluster.phase("a") == "Scheduled")

    cluster.play(story)

    assert len({node.split("-")[0] for node in cluster.bound("a").values()}) == 1
    assert "Assigned 4 pods of the group to nodes" in cluster.notes("a")


def test_pods_that_come_before_their_group_wait_for_it() -> None:
    cluster = GangCluster()
    cluster.add_pods("a", 0, 1)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["gated"] == 2)
            cluster.add_group("a", 2)
            await cluster.until(lambda: len(cluster.bound("a")) == 2)

    cluster.play(story)


def test_a_gang_that_does_not_fit_says_so_on_the_group_and_its_pods_and_goes_when_there_is_room() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_gang("a", 3)
    cluster.add_group("b", 3)
    pods = ["b-0", "b-1", "b-2"]

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("a")) == 3)
            cluster.add_pods("b", 0, 1, 2)
            await cluster.until(lambda: cluster.phase("b") == "Pending")
            await cluster.until(lambda: all("no leaf of 1 holds 3" in "".join(cluster.notes(pod)) for pod in pods))
            await cluster.until(lambda: all("no leaf of 1 holds 3" in cluster.message(pod) for pod in pods))
            for number in range(3):
                cluster.server.delete(PODS, f"a-{number}", grace_period_seconds=0)
            await cluster.until(lambda: len(cluster.bound("b")) == 3)

    cluster.play(story)


def test_a_member_that_the_api_server_refuses_to_bind_is_placed_with_the_others_later() -> None:
    cluster = GangCluster()
    cluster.add_gang("a", 3)
    refusals: list[str] = []

    def refuse(verb: str, resource: Resource[Any], name: str) -> Exception | None:
        if verb == "bind" and name == "a-1" and not refusals:
            refusals.append(name)
            return Conflict(409, "Conflict", "the pod is being looked at")
        return None

    async def story() -> Scheduler:
        async with cluster.scheduler(refuse) as scheduler:
            await cluster.until(lambda: len(cluster.bound("a")) == 3)
            await cluster.until(lambda: not scheduler.cache.assumed)
            return scheduler

    scheduler = cluster.play(story)

    assert refusals and len({node.split("-")[0] for node in cluster.bound("a").values()}) == 1
    assert scheduler.cache.nodes.view().requested("nvidia.com/gpu").sum() == 24


def test_a_gang_that_is_deleted_while_it_waits_leaves_nothing() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_gang("a", 5)

    async def story() -> Scheduler:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["unschedulable"] == 5)
            for number in range(5):
                cluster.server.delete(PODS, f"a-{number}", grace_period_seconds=0)
            await cluster.until(lambda: not list(scheduler.queue))
            return scheduler

    scheduler = cluster.play(story)

    assert not scheduler.cache.pods and not scheduler.cache.nodes.requested.any()


def test_an_api_server_that_does_not_answer_delays_the_gang_and_loses_nobody() -> None:
    cluster = GangCluster()
    cluster.add_gang("a", 4)

    def down(verb: str, resource: Resource[Any], name: str) -> Exception | None:
        late = cluster.clock.monotonic() - start > 3.0
        return Unavailable(503, "Unavailable", "down") if verb == "bind" and not late else None

    start = cluster.clock.monotonic()

    async def story() -> None:
        async with cluster.scheduler(down):
            await cluster.until(lambda: len(cluster.bound("a")) == 4)

    cluster.play(story)

    assert len({node.split("-")[0] for node in cluster.bound("a").values()}) == 1


def test_members_that_come_while_the_others_are_being_bound_join_them() -> None:
    cluster = GangCluster()
    cluster.add_gang("a", 2)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.cache.assumed == 2)
            cluster.add_pods("a", 2)
            await cluster.until(lambda: len(cluster.bound("a")) == 3)

    cluster.play(story)

    assert len({node.split("-")[0] for node in cluster.bound("a").values()}) == 1


def test_a_gang_that_a_scheduler_left_bound_in_part_comes_before_all_others() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_gang("a", 2)
    cluster.add_group("b", 4)
    cluster.add_pods("b", 2, 3)
    for number in (0, 1):
        pod = make_pod(f"b-{number}", gpus=8, labels={GROUP: "b"}, annotations={REQUIRED: "leaf"}, node=f"l0-n{number}")
        cluster.create(PODS, pod)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("b")) == 4)

    cluster.play(story)

    assert not cluster.bound("a")


def test_members_that_are_being_deleted_do_not_count_for_those_that_come_in_their_place() -> None:
    cluster = GangCluster()
    cluster.add_gang("a", 4, annotations={})
    cluster.add_gang("b", 2, annotations={})

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound()) == 6)
            for number in range(4):
                cluster.server.delete(PODS, f"a-{number}", namespace="default")  # and they stay on their nodes
            cluster.add_pods("a", 4, 5, 6, 7, annotations={})
            await cluster.until(lambda: "2 of 4 pods fit" in cluster.message("a-7"))

    cluster.play(story)

    assert not cluster.bound("a")


def test_the_leaf_of_members_that_are_being_deleted_does_not_bind_those_that_come_in_their_place() -> None:
    cluster = GangCluster()
    cluster.add_gang("a", 4)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound()) == 4)
            for number in range(4):
                cluster.server.delete(PODS, f"a-{number}", namespace="default")
            cluster.add_pods("a", 4, 5, 6, 7)
            await cluster.until(lambda: len(cluster.bound("a")) == 4)

    cluster.play(story)
