"""Leases of bound pods that somebody has deleted are made again soon, and never for a pod that has ended."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gangline import Unavailable, custom_resources, resources
from gangline.simulate import Tenure
from gangline.testing import make_node
from gangline_plugins.gpu.leases import mending
from gangline_plugins.gpu.leases.holds import HOLDERS
from gangline_plugins.gpu.leases.reaper import SWEEP

from ..gpu_cases import report
from ..lease_cases import NAMESPACE, LeaseCluster

SOON = 3.0  # seconds
GRANULARITIES = pytest.mark.parametrize("granularity", ["device", "node"])


def empty(cluster: LeaseCluster) -> None:
    """A stranger deletes all leases."""
    for name in cluster.leases():
        cluster.server.delete(resources.LEASES, name, namespace=NAMESPACE)


@GRANULARITIES
@pytest.mark.parametrize("claim_stays", [True, False], ids=["claim", "no claim"])
def test_leases_that_a_stranger_deletes_are_made_again(granularity: str, claim_stays: bool) -> None:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=4)
    cluster.add_pod("one")
    cluster.add_pod("two")

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("one", "two")
            await asyncio.sleep(15)
            if not claim_stays:
                cluster.server.delete(resources.GPU_CLAIMS, "claim")
            empty(cluster)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), SOON)

    cluster.play(story)

    assert len(cluster.held()) == 8


@GRANULARITIES
@pytest.mark.parametrize("written", ["{", None, "{}"], ids=["no JSON", "nothing", "nobody"])
def test_pods_that_share_a_device_are_all_named_again_after_a_stranger_has_edited_its_lease(
    granularity: str, written: str | None
) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=1, exclusivity="Shared", fraction=0.25)
    names = ("one", "two", "three")
    for name in names:
        cluster.add_pod(name)

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound(*names)
            await asyncio.sleep(15)
            (lease,) = cluster.leases()
            edit = {"metadata": {"annotations": {HOLDERS: written}}}
            cluster.server.patch(resources.LEASES, lease, edit, namespace=NAMESPACE)
            await asyncio.sleep(2 * SWEEP)

    cluster.play(story)

    assert sorted(len(holders) for holders in cluster.held().values()) == [3]
    assert {key: set(uids) for key, uids in cluster.held().items()} == {
        key: set(uids) for key, uids in cluster.allocated().items()
    }


def test_a_lease_is_mended_that_was_edited_before_the_watch_came_back_and_could_tell_of_its_creation() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=1)
    is_cut = False

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        is_read = resource == resources.LEASES and verb in ("list", "watch")
        return Unavailable(503, "ServiceUnavailable", "not now") if is_cut and is_read else None

    async def story() -> None:
        nonlocal is_cut
        async with cluster.scheduler(faults=faults):
            await asyncio.sleep(1)
            is_cut = True
            cluster.server.disconnect()
            cluster.add_pod("one")
            await cluster.until_bound("one")
            (lease,) = cluster.leases()
            hold = '{"nobody": {"pod": "default/nobody", "by": "stranger.1", "ids": [0]}}'
            edit = {"metadata": {"annotations": {HOLDERS: hold}}}
            cluster.server.patch(resources.LEASES, lease, edit, namespace=NAMESPACE)
            cluster.server.compact()
            is_cut = False
            await asyncio.sleep(3 * SWEEP)

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and cluster.held()


def test_leases_of_which_the_watch_has_not_told_a_new_leader_yet_are_not_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=4)
    is_cut = False
    written: list[str] = []

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if resource == resources.LEASES and name.startswith("gpu") and verb not in ("list", "watch", "get"):
            written.append(f"{verb} {name}")
        is_read = resource == resources.LEASES and verb in ("list", "watch")
        return Unavailable(503, "ServiceUnavailable", "not now") if is_cut and is_read else None

    async def story() -> None:
        nonlocal is_cut
        async with AsyncExitStack() as first:
            await first.enter_async_context(cluster.scheduler(identity="first"))
            await asyncio.sleep(5)
            tenure = Tenure(cluster.clock)
            async with cluster.scheduler(identity="second", faults=faults, tenure=tenure):
                await asyncio.sleep(5)
                is_cut = True
                cluster.server.disconnect()
                cluster.add_pod("one")
                await cluster.until_bound("one")
                await first.aclose()
                await cluster.until(tenure.holds, 60)
                await asyncio.sleep(3 * SWEEP)

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 4
    assert not written and "made again" not in caplog.text


def test_leases_that_are_gone_at_the_start_are_made_again() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=4)
    cluster.add_pod("one")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("one")
        empty(cluster)
        async with cluster.scheduler():
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 2 * SWEEP)

    cluster.play(story)

    assert len(cluster.held()) == 4


@GRANULARITIES
def test_pods_of_a_node_that_is_deleted_and_made_anew_keep_their_leases(granularity: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=4)
    cluster.add_pod("one")

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("one")
            cluster.server.delete(resources.NODES, "node-0")
            cluster.server.delete(resources.GPU_NODE_STATUSES, "node-0")
            await asyncio.sleep(2 * SWEEP)
            cluster.create(resources.NODES, make_node("node-0"))
            await asyncio.sleep(1)
            cluster.create(resources.GPU_NODE_STATUSES, report("node-0"))
            cluster.add_pod("two")
            await cluster.until_bound("two", seconds=10)
            await asyncio.sleep(SWEEP)

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 8


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_gets_no_lease_again(phase: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=4)
    cluster.add_pod("one")
    written: list[str] = []

    def note(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if verb == "create" and resource is resources.LEASES:
            written.append(name)

    async def story() -> None:
        async with cluster.scheduler(faults=note):
            await cluster.until_bound("one")
            await asyncio.sleep(15)
            written.clear()
            cluster.set_phase("one", phase)
            empty(cluster)
            await asyncio.sleep(2 * SWEEP)

    cluster.play(story)

    assert not written and not cluster.leases()


def test_an_annotation_that_is_not_believed_gets_no_lease() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_pod("liar", uses="", annotations={custom_resources.ALLOCATED: "0,1,2,3"})
    cluster.server.bind("default", "liar", "", "node-0", {})

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(3 * SWEEP)

    cluster.play(story)

    assert not cluster.leases()


def test_leases_are_made_again_soon_after_the_api_server_works_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=4)
    cluster.add_pod("one")
    is_down = False

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return Unavailable(503, "ServiceUnavailable", "not now") if is_down and verb in ("get", "create") else None

    async def story() -> None:
        nonlocal is_down
        async with cluster.scheduler(faults=faults):
            await cluster.until_bound("one")
            await asyncio.sleep(35)
            is_down = True
            empty(cluster)
            await asyncio.sleep(6)
            is_down = False
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 6 + SOON)

    cluster.play(story)

    assert sum("cannot look after the devices of pod default/one yet" in each.message for each in caplog.records) == 1


@GRANULARITIES
@pytest.mark.parametrize("report_goes", [False, True], ids=["report stays", "report goes"])
def test_leases_that_are_lost_while_the_node_is_gone_are_made_again_when_it_is_back(
    granularity: str, report_goes: bool
) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=4)
    cluster.add_pod("one")

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("one")
            await asyncio.sleep(15)
            cluster.server.delete(resources.NODES, "node-0")
            if report_goes:
                cluster.server.delete(resources.GPU_NODE_STATUSES, "node-0")
            await asyncio.sleep(1)
            empty(cluster)
            await asyncio.sleep(65)  # the next sweep is more than 20 s away
            cluster.create(resources.NODES, make_node("node-0"))
            await asyncio.sleep(1)
            if report_goes:
                cluster.create(resources.GPU_NODE_STATUSES, report("node-0"))
            await cluster.until(lambda: cluster.held() == cluster.allocated() != {}, SOON)

    cluster.play(story)


def test_many_lost_leases_are_made_again_a_bounded_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending, "MOST", most := 32)
    count = 2 * most + 8
    cluster = LeaseCluster(nodes=count // 8)
    cluster.add_claim(count=1)
    for number in range(count):
        cluster.add_pod(f"pod-{number}")
    asked: list[float] = []

    def note(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if verb == "get" and resource is resources.PODS:
            asked.append(cluster.clock.monotonic())

    async def story() -> None:
        async with cluster.scheduler(faults=note):
            await cluster.until(lambda: len(cluster.allocated()) == count)
            await asyncio.sleep(15)
            asked.clear()
            empty(cluster)
            await cluster.until(lambda: len(cluster.held()) == count, 10)

    cluster.play(story)

    assert cluster.held() == cluster.allocated()
    assert len(asked) >= count
    assert all(sum(at <= each < at + 1 for each in asked) <= most for at in asked)
