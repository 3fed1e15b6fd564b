"""Members of a gang that have succeeded count towards what it needs, and those that have failed do not."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gangline import model
from gangline.kube.resources import PODS
from gangline.testing import make_pod
from gangline.testing.gang_stories import GangCluster
from gangline.testing.gangs import GROUP


def end(cluster: GangCluster, pod: str, phase: str) -> None:
    cluster.server.patch(PODS, pod, {"status": {"phase": phase}}, subresource="status")


def add_run(cluster: GangCluster, group: str, job: str, *numbers: int) -> None:
    """Pods of a group that a Job has made."""
    for number in numbers:
        pod = make_pod(f"{group}-{number}", gpus=8, labels={GROUP: group}, scheduler_name="gangs")
        pod.metadata.owner_references = [model.OwnerReference("Job", job, f"job-{job}", "batch/v1", controller=True)]
        cluster.create(PODS, pod)


def make_again(cluster: GangCluster, group: str, number: int) -> None:
    """The member is deleted and created again under another name, as a controller does it."""
    cluster.server.delete(PODS, f"{group}-{number}", grace_period_seconds=0)
    cluster.add_pods(group, number + 10)


@pytest.mark.parametrize("restarted", [False, True], ids=["at work", "restarted"])
@pytest.mark.parametrize("succeeded", [1, 2, 3])
def test_a_member_that_is_made_again_does_not_wait_for_those_that_have_succeeded(
    succeeded: int, restarted: bool
) -> None:
    cluster = GangCluster()
    cluster.add_gang("a", 4)

    async def story() -> None:
        async with AsyncExitStack() as first:
            await first.enter_async_context(cluster.scheduler())
            await cluster.until(lambda: len(cluster.bound("a")) == 4)
            for number in range(succeeded):
                end(cluster, f"a-{number}", "Succeeded")
            await asyncio.sleep(1)
            if restarted:
                await first.aclose()
                await first.enter_async_context(cluster.scheduler())
                await asyncio.sleep(1)
            make_again(cluster, "a", 3)
            await cluster.until(lambda: "a-13" in cluster.bound(), 10)

    cluster.play(story)


def test_a_member_that_waits_already_goes_when_another_one_succeeds() -> None:
    cluster = GangCluster()
    cluster.add_group("a", 2)
    cluster.add_pods("a", 0)

    async def story() -> None:
        async with cluster.scheduler():
            cluster.create(PODS, make_pod("a-1", node="l0-n0", labels={GROUP: "a"}))
            end(cluster, "a-1", "Succeeded")
            await cluster.until(lambda: "a-0" in cluster.bound(), 10)

    cluster.play(story)


def test_members_that_have_failed_do_not_count() -> None:
    cluster = GangCluster()
    cluster.add_gang("a", 3)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("a")) == 3)
            end(cluster, "a-0", "Failed")
            end(cluster, "a-1", "Succeeded")
            await asyncio.sleep(1)
            make_again(cluster, "a", 2)
            await asyncio.sleep(20)
            assert "a-12" not in cluster.bound()
            make_again(cluster, "a", 0)
            await cluster.until(lambda: {"a-10", "a-12"} <= cluster.bound().keys(), 10)

    cluster.play(story)


def test_a_member_that_has_succeeded_counts_until_it_is_deleted() -> None:
    cluster = GangCluster()
    cluster.add_gang("a", 2)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("a")) == 2)
            end(cluster, "a-0", "Succeeded")
            await asyncio.sleep(1)
            cluster.server.delete(PODS, "a-0", grace_period_seconds=0)
            make_again(cluster, "a", 1)
            await asyncio.sleep(20)
            assert not cluster.bound()

    cluster.play(story)


def test_the_pods_of_the_last_run_do_not_count_for_the_next_one_of_the_same_name() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_group("a", 3)
    add_run(cluster, "a", "first", 0, 1, 2)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("a")) == 3)
            for number in range(3):
                end(cluster, f"a-{number}", "Succeeded")
            await asyncio.sleep(1)
            add_run(cluster, "a", "second", 10, 11)
            await asyncio.sleep(20)
            assert len(cluster.bound("a")) == 3
            add_run(cluster, "a", "second", 12)
            await cluster.until(lambda: len(cluster.bound("a")) == 6, 10)

    cluster.play(story)
