"""While the report of a node is gone for a moment, no pod is bound there without devices; one that was is mended."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gangline import custom_resources, resources
from gangline.testing import make_node, make_pod
from gangline_plugins.gpu.feasibility import AWAITED

from .gpu_cases import report
from .lease_cases import LeaseCluster

GONE_FOR = 4.5  # seconds


def add_plain(cluster: LeaseCluster, name: str, gpus: int = 2, node: str = "") -> None:
    cluster.create(resources.PODS, make_pod(name, gpus=gpus, scheduler_name="gpus", node=node))


@pytest.mark.parametrize("goes", ["the report", "the node, which comes back before its report"])
def test_a_plain_request_waits_for_the_report_of_its_node_to_come_back(goes: str) -> None:
    cluster = LeaseCluster(nodes=1)

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(1)
            if goes != "the report":
                cluster.server.delete(resources.NODES, "node-0")
            cluster.server.delete(resources.GPU_NODE_STATUSES, "node-0")
            if goes != "the report":
                await asyncio.sleep(1)
                cluster.create(resources.NODES, make_node("node-0"))
            add_plain(cluster, "train")
            await asyncio.sleep(GONE_FOR)
            assert not cluster.bound()
            cluster.create(resources.GPU_NODE_STATUSES, report("node-0"))
            await cluster.until_bound("train", seconds=5)

    cluster.play(story)

    assert len(cluster.allocated()) == 2 and cluster.held() == cluster.allocated()


def test_a_node_whose_agent_was_removed_for_good_takes_plain_requests_again() -> None:
    cluster = LeaseCluster(nodes=1)

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(1)
            cluster.server.delete(resources.GPU_NODE_STATUSES, "node-0")
            await asyncio.sleep(1)
            add_plain(cluster, "early")
            await asyncio.sleep(AWAITED)
            add_plain(cluster, "late")
            await cluster.until_bound("late", seconds=5)
            await cluster.until_bound("early", seconds=330)

    cluster.play(story)

    assert not cluster.leases()


def test_where_pods_have_shares_of_devices_too_many_plain_requests_do_not_come_while_the_report_is_gone() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.server.patch(
        resources.NODES, "node-0", {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}, subresource="status"
    )
    cluster.add_claim(count=2, exclusivity="Shared", fraction=0.5)
    cluster.add_pod("share")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("share")
            cluster.server.delete(resources.GPU_NODE_STATUSES, "node-0")
            await asyncio.sleep(1)
            add_plain(cluster, "first", gpus=2)
            await asyncio.sleep(AWAITED)
            add_plain(cluster, "second", gpus=4)
            await cluster.until_bound("first", "second", seconds=330)
            add_plain(cluster, "third", gpus=1)
            await cluster.until(lambda: "didn't have enough free GPUs" in cluster.message("third"))
            cluster.create(resources.GPU_NODE_STATUSES, report("node-0"))
            await cluster.until(lambda: len(cluster.held()) == 8)

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and "third" not in cluster.bound()


@pytest.mark.parametrize("first", ["its devices", "that it is there, as agents do"])
def test_a_pod_that_was_bound_without_devices_gets_them_when_its_node_reports_them(first: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.server.delete(resources.GPU_NODE_STATUSES, "node-0")
    add_plain(cluster, "train")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("train", seconds=5)
            assert custom_resources.ALLOCATED not in (cluster.pod("train").metadata.annotations or {})
            cluster.create(resources.GPU_NODE_STATUSES, report("node-0", "hgx-h100" if first == "its devices" else []))
            await asyncio.sleep(0.1)
            status = msgspec.to_builtins(report("node-0").status)
            cluster.server.patch(resources.GPU_NODE_STATUSES, "node-0", {"status": status}, subresource="status")
            await cluster.until(lambda: len(cluster.held()) == 2, 4)
            await cluster.until(
                lambda: custom_resources.ALLOCATED in (cluster.pod("train").metadata.annotations or {}), 5
            )
            await asyncio.sleep(60)

    cluster.play(story)

    assert cluster.held() == cluster.allocated()
    note = "the pod was bound while its node did not report its GPUs: it has GPU 0,1 now"
    assert [each for each in cluster.notes("train") if each == note] == [note]


def test_devices_are_chosen_late_only_where_they_are_free() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=6)
    cluster.add_pod("first")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("first", seconds=5)
            add_plain(cluster, "second", gpus=2, node="node-0")
            add_plain(cluster, "third", gpus=2, node="node-0")
            await cluster.until(lambda: len(cluster.held()) == 8, 40)
            await asyncio.sleep(60)

    cluster.play(story)

    assert all(len(uids) == 1 for uids in cluster.held().values())
    without = [
        name
        for name in ("second", "third")
        if custom_resources.ALLOCATED not in (cluster.pod(name).metadata.annotations or {})
    ]
    assert len(without) == 1
    assert "the pod was bound without devices, and too few are free on its node to choose some now" in cluster.notes(
        without[0]
    )


def test_a_pod_that_wants_more_devices_than_its_node_has_gets_none_late() -> None:
    cluster = LeaseCluster(nodes=1)
    add_plain(cluster, "train", gpus=9, node="node-0")

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(70)

    cluster.play(story)

    assert not cluster.leases() and custom_resources.ALLOCATED not in (cluster.pod("train").metadata.annotations or {})


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_gets_no_devices_late(phase: str) -> None:
    cluster = LeaseCluster(nodes=1)
    add_plain(cluster, "train", node="node-0")
    cluster.set_phase("train", phase)

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(70)

    cluster.play(story)

    assert not cluster.leases()
