"""The status of a GpuClaim comes to be right although the API server does not take it at first."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gangline import ApiError, Conflict, TooManyRequests, Unavailable, resources
from gangline_plugins.gpu.claim_status import LONGEST_WAIT
from gangline_plugins.gpu.late_statuses import LOOK

from .lease_cases import LeaseCluster

DOWN_S = 20.0
FAULTS = [
    Conflict(409, "Conflict", "changed"),
    Unavailable(503, "ServiceUnavailable", "down"),
    TooManyRequests(429, "TooManyRequests", "later", 1.0),
]


@pytest.mark.parametrize("fault", FAULTS, ids=["conflict", "no answer", "too many requests"])
def test_a_status_that_the_api_server_does_not_take_is_tried_again(
    fault: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    cluster.add_pod("train")
    is_down, tries = True, 0

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        nonlocal tries
        if verb != "patch" or resource is not resources.GPU_CLAIMS:
            return None
        tries += 1
        return fault if is_down else None

    async def story() -> None:
        nonlocal is_down
        async with cluster.scheduler(faults=faults):
            await cluster.until_bound("train")
            await asyncio.sleep(DOWN_S)
            assert not cluster.get(resources.GPU_CLAIMS, "claim").status.phase
            assert 2 <= tries <= 10
            is_down = False
            await cluster.until(
                lambda: cluster.get(resources.GPU_CLAIMS, "claim").status.phase == "Bound", LONGEST_WAIT
            )

    cluster.play(story)

    assert cluster.get(resources.GPU_CLAIMS, "claim").status.gpu_ids == [0, 1]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("phase", ["", "Pending", "Reserved"])
def test_a_claim_says_that_it_is_bound_although_the_scheduler_has_died_after_the_bind(phase: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    cluster.add_pod("train")

    def dies(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return (
            Unavailable(503, "ServiceUnavailable", "down")
            if resource is resources.GPU_CLAIMS and verb == "patch"
            else None
        )

    async def story() -> None:
        async with cluster.scheduler(faults=dies):
            await cluster.until_bound("train")
        assert not cluster.get(resources.GPU_CLAIMS, "claim").status.phase
        cluster.server.patch(resources.GPU_CLAIMS, "claim", {"status": {"phase": phase}}, subresource="status")
        async with cluster.scheduler():
            await cluster.until(lambda: cluster.get(resources.GPU_CLAIMS, "claim").status.phase == "Bound", 3 * LOOK)

    cluster.play(story)

    status = cluster.get(resources.GPU_CLAIMS, "claim").status
    assert (status.node_name, status.gpu_ids, status.allocated) == ("node-0", [0, 1], "node-0:0,1")


def test_a_new_leader_writes_the_status_that_the_last_one_could_not_write() -> None:
    """A standby that rehearses does not take the status for written."""
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=9)

    def dies(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return (
            Unavailable(503, "ServiceUnavailable", "down")
            if resource is resources.GPU_CLAIMS and verb == "patch"
            else None
        )

    async def story() -> None:
        async with AsyncExitStack() as leader, AsyncExitStack() as standby:
            await leader.enter_async_context(cluster.scheduler(identity="one", faults=dies))
            await cluster.until(lambda: bool(cluster.list(resources.LEASES, "kube-system")))
            await standby.enter_async_context(cluster.scheduler(identity="two"))
            cluster.add_pod("train")
            await asyncio.sleep(10)
            assert not cluster.get(resources.GPU_CLAIMS, "claim").status.phase
            await leader.aclose()
            await cluster.until(lambda: cluster.get(resources.GPU_CLAIMS, "claim").status.phase == "Pending", 90)

    cluster.play(story)


def test_a_claim_whose_pod_waits_is_not_said_to_be_bound() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=9)
    cluster.add_pod("train")
    cluster.server.patch(resources.GPU_CLAIMS, "claim", {"status": {"phase": "Pending"}}, subresource="status")

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(4 * LOOK)

    cluster.play(story)

    assert cluster.get(resources.GPU_CLAIMS, "claim").status.phase == "Pending"
