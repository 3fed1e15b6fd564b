"""What fails is tried again soon, and then less and less often."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from typing import Any

import pytest

from gangline import Forbidden, GanglineError, InvalidObject, Unavailable, resources
from gangline.testing import FakeClock
from gangline_plugins.gpu.leases.reaper import SWEEP
from gangline_plugins.gpu.leases.retrying import AT_ONCE, LONGEST, MOST, Retries

from ..lease_cases import LeaseCluster

SOON = 2.0  # seconds


def one_pod() -> LeaseCluster:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=4)
    cluster.add_pod("train")
    return cluster


def test_pauses_double_up_to_the_longest_one_and_only_the_first_failure_is_news() -> None:
    clock = FakeClock()
    retries: Retries[str] = Retries(clock)

    news, pauses = [], []
    for _ in range(8):
        news.append(retries.failed("a"))
        pauses.append(retries.next_at - clock.monotonic())
        clock.advance(pauses[-1])
        assert (retries.take(), retries.take(), retries.next_at) == (["a"], [], math.inf)

    assert news == [True] + [False] * 7
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST, LONGEST, LONGEST]


def test_after_a_success_failures_count_anew() -> None:
    clock = FakeClock()
    retries: Retries[str] = Retries(clock)
    for _ in range(4):
        retries.failed("a")

    retries.ended("a")

    assert "a" not in retries and retries.next_at == math.inf
    assert retries.failed("a") and retries.next_at == clock.monotonic() + 1.0


def test_a_bounded_number_is_remembered_and_tried_together() -> None:
    clock = FakeClock()
    retries: Retries[int] = Retries(clock)

    assert all(retries.failed(number) for number in range(MOST + 10))
    clock.advance(1.0)

    batches = list(itertools.takewhile(bool, iter(retries.take, None)))
    assert {len(batch) for batch in batches[:-1]} == {AT_ONCE}
    assert sum(map(len, batches)) == MOST


@pytest.mark.parametrize("verb", ["get", "delete"])
def test_devices_are_free_soon_after_the_api_server_works_again(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster = one_pod()
    is_down = False

    def faults(asked: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return Unavailable(503, "ServiceUnavailable", "not now") if is_down and asked == verb else None

    async def story() -> None:
        nonlocal is_down
        async with cluster.scheduler(faults=faults):
            await cluster.until_bound("train")
            await asyncio.sleep(SWEEP / 3)
            is_down = True
            cluster.server.delete(resources.PODS, "train", grace_period_seconds=0)
            await asyncio.sleep(4)
            is_down = False
            await cluster.until(lambda: not cluster.leases(), 4 + SOON)

    cluster.play(story)

    lines = Counter(record.getMessage() for record in caplog.records if "cannot look after" in record.getMessage())
    assert lines and set(lines.values()) == {1}


@pytest.mark.parametrize(
    "failure",
    [Unavailable(503, "ServiceUnavailable", "not now"), InvalidObject("metadata", None, "expected an object")],
    ids=["unavailable", "unreadable"],
)
@pytest.mark.parametrize("is_reloaded", [False, True], ids=["", "reloaded"])
def test_leases_of_an_attempt_that_cannot_be_released_at_once_are_released_soon(
    failure: GanglineError, is_reloaded: bool
) -> None:
    cluster = one_pod()
    is_down = True

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "bind":
            cluster.server.delete(resources.GPU_CLAIMS, "claim")  # so that there is no second attempt
            return Forbidden(403, "Forbidden", "pods/binding is forbidden")
        is_failing = is_down and verb in ("get", "delete") and resource is resources.LEASES
        return failure if is_failing else None

    async def story() -> None:
        nonlocal is_down
        async with cluster.scheduler(faults=faults) as scheduler:
            await cluster.until(lambda: len(cluster.leases()) == 4, SOON)
            await asyncio.sleep(4)
            if is_reloaded:
                scheduler.use(scheduler.config)
                await asyncio.sleep(1)
            is_down = False
            await cluster.until(lambda: not cluster.leases(), 4 + SOON)

    cluster.play(story)

    assert not cluster.pod("train").spec.node_name
