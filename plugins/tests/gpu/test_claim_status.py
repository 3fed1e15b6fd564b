"""The status of a GpuClaim comes to be right although the API server does not take it at first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Literal, cast

import msgspec
import pytest

from gangline import ApiError, Conflict, Handle, TooManyRequests, Unavailable, custom_resources, resources
from gangline.testing import cluster, make_pod
from gangline_plugins.gpu.claim_status import LONGEST_WAIT, ClaimStatuses
from gangline_plugins.gpu.late_statuses import LOOK

from .gpu_cases import claim
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


class LateHandle:
    """A handle whose client writes a status as soon as it may; the store does not hear of that."""

    def __init__(self, claim: custom_resources.GpuClaim) -> None:
        self.state = cluster()
        self.state.store(resources.GPU_CLAIMS).upsert(claim)
        self.client = self
        self.may = asyncio.Event()
        self.phases: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.tasks.append(asyncio.create_task(work()))

    async def patch(self, *where: Any, **more: Any) -> custom_resources.GpuClaim:
        await self.may.wait()
        self.phases.append(where[2]["status"]["phase"])
        return claim_of("Reserved", "6")


def claim_of(phase: Literal["Reserved", "Failed"], version: str) -> custom_resources.GpuClaim:
    found = claim()
    found.metadata.resource_version = version
    return msgspec.structs.replace(found, status=custom_resources.GpuClaimStatus(phase))


@pytest.mark.parametrize("is_written", [True, False], ids=["after the write", "during the write"])
def test_a_status_that_comes_again_is_written_although_the_watch_is_late(is_written: bool) -> None:
    async def story() -> list[str]:
        found = claim_of("Failed", "5")
        handle = LateHandle(found)
        statuses = ClaimStatuses(cast(Handle, handle))
        statuses.set(found, custom_resources.GpuClaimStatus("Reserved"))
        if is_written:
            handle.may.set()
            await asyncio.gather(*handle.tasks)
        else:
            await asyncio.sleep(0)  # the write begins
        statuses.set(found, custom_resources.GpuClaimStatus("Failed"))
        handle.may.set()
        await asyncio.gather(*handle.tasks)
        return handle.phases

    assert asyncio.run(story()) == ["Reserved", "Failed"]


def test_a_status_that_somebody_else_has_changed_is_written_again() -> None:
    async def story() -> list[str]:
        found = claim_of("Failed", "5")
        handle = LateHandle(found)
        handle.may.set()
        statuses = ClaimStatuses(cast(Handle, handle))
        for seen in (found, claim_of("Failed", "7")):
            statuses.set(seen, custom_resources.GpuClaimStatus("Reserved"))
            await asyncio.gather(*handle.tasks)
        return handle.phases

    assert asyncio.run(story()) == ["Reserved", "Reserved"]


@pytest.mark.parametrize("is_written", [True, False], ids=["after the write", "before the write"])
def test_a_claim_that_was_given_a_status_is_not_new_although_the_watch_is_late(is_written: bool) -> None:
    async def story() -> bool:
        found = msgspec.structs.replace(claim_of("Reserved", "5"), status=custom_resources.GpuClaimStatus())
        handle = LateHandle(found)
        statuses = ClaimStatuses(cast(Handle, handle))
        pod = handle.state.record(make_pod("p", annotations={custom_resources.CLAIM: found.metadata.name}))
        assert statuses.is_new(pod)
        statuses.set(found, custom_resources.GpuClaimStatus("Reserved"))
        if is_written:
            handle.may.set()
            await asyncio.gather(*handle.tasks)
        is_new = statuses.is_new(pod)
        handle.may.set()
        await asyncio.gather(*handle.tasks)
        return is_new

    assert not asyncio.run(story())


def test_a_claim_of_an_absurd_version_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    handle = LateHandle(claim_of("Failed", "5"))
    ClaimStatuses(cast(Handle, handle))

    handle.state.store(resources.GPU_CLAIMS).upsert(claim_of("Failed", "9" * 25))

    assert not caplog.records
