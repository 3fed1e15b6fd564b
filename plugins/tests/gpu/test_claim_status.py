"""The status of a GpuClaim comes to be right although the API server does not take it at first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline.errors import ApiError, TooManyRequests, Unavailable
from gangline.kube.resources import GPU_CLAIMS, Resource
from gangline_plugins.gpu.claim_status import LONGEST_WAIT

from .lease_cases import LeaseCluster

DOWN_S = 20.0
FAULTS = [Unavailable(503, "ServiceUnavailable", "down"), TooManyRequests(429, "TooManyRequests", "later", 1.0)]


@pytest.mark.parametrize("fault", FAULTS, ids=["no answer", "too many requests"])
def test_a_status_that_the_api_server_does_not_take_is_tried_again(
    fault: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    cluster.add_pod("train")
    is_down, tries = True, 0

    def faults(verb: str, resource: Resource[Any], name: str) -> Exception | None:
        nonlocal tries
        if verb != "patch" or resource is not GPU_CLAIMS:
            return None
        tries += 1
        return fault if is_down else None

    async def story() -> None:
        nonlocal is_down
        async with cluster.scheduler(faults=faults):
            await cluster.until_bound("train")
            await asyncio.sleep(DOWN_S)
            assert not cluster.get(GPU_CLAIMS, "claim").status.phase
            assert 2 <= tries <= 10
            is_down = False
            await cluster.until(lambda: cluster.get(GPU_CLAIMS, "claim").status.phase == "Bound", LONGEST_WAIT)

    cluster.play(story)

    assert cluster.get(GPU_CLAIMS, "claim").status.gpu_ids == [0, 1]
    assert not [record for record in caplog.records if record.exc_info]
