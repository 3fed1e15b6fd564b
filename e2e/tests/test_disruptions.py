"""A Job that may not fail ignores disruptions: whoever takes its pods off a node, none of them counts as a failure.

The Job controller creates the next pods late, all the same: ten seconds after one pod has failed, twice as long after
each further one. So the Jobs are small here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gangline.failpoints import VARIABLE
from gangline_e2e import gangs, node_losses
from gangline_e2e.disruptions import ONE_LEAF, Disruptions, configuration, furnished
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest, gpu_pod

StartControlPlane = Callable[[Options], ControlPlane]

ARGUMENTS: dict[str, Manifest] = {
    "Recovery": {"graceSeconds": 0.5, "releaseSeconds": 3},
    "Defragmentation": {"intervalSeconds": 1},
}

DIES_S = 60.0

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def story(
    start_control_plane: StartControlPlane, start_gangline: Callable[..., Any]
) -> AsyncIterator[Disruptions]:
    plane = start_control_plane(Options(controller_manager=True))
    async with furnished(plane.kubeconfig, nodes=2) as found:
        start_gangline(plane.kubeconfig, configuration(**ARGUMENTS))
        yield found


async def test_a_job_that_a_pod_preempts_counts_no_failure(story: Disruptions) -> None:
    await story.cordon(1)
    before = await story.add("train", 2)

    spec = {"priorityClassName": "urgent"}
    await story.api.create(gpu_pod("urgent", gpus=8, scheduler_name=gangs.PROFILE, spec=spec))
    await story.is_made_anew("train", 2, before)

    assert story.said(before) == {"PreemptionByScheduler"}
    assert await story.failures("train") == 0


async def test_jobs_that_a_gang_preempts_count_no_failures(story: Disruptions) -> None:
    before = {name: await story.add(name, 2, ONE_LEAF) for name in ("train", "other")}

    await story.add_urgent(4)

    for name, pods in before.items():
        await story.is_made_anew(name, 2, pods)
        assert story.said(pods) == {"PreemptionByScheduler"}
        assert await story.failures(name) == 0


async def test_a_gang_goes_as_a_whole_though_the_scheduler_is_killed_between_two_evictions(
    start_control_plane: StartControlPlane, start_gangline: Callable[..., Gangline]
) -> None:
    plane = start_control_plane(Options(controller_manager=True))
    async with furnished(plane.kubeconfig, nodes=2) as story:
        doomed = {VARIABLE: "preemption.after-removal=exit@2"}
        scheduler = start_gangline(plane.kubeconfig, configuration(**ARGUMENTS), env=doomed)
        before = await story.add("train", 4)
        await story.api.create(story.urgent(4))
        assert await asyncio.to_thread(scheduler.process.wait, DIES_S)
        assert 0 < len(before & story.reasons.keys()) < len(before)

        await story.end("urgent")  # so nobody would preempt again
        scheduler.env = {}
        scheduler.start()
        await story.are_removed(before)

        assert story.said(before) == {"PreemptionByScheduler"}


async def test_a_job_that_is_moved_aside_counts_no_failure(story: Disruptions) -> None:
    before = {}
    for name, closed in (("first", 1), ("second", 0)):
        await story.cordon(closed)
        before[name] = await story.add(name, 1, gpus=1)
        await story.cordon()
    await story.add("big", 2, ONE_LEAF)

    after = {name: await story.runs(name, 1) for name in before}
    (moved,) = (name for name in before if before[name] != after[name])
    assert story.said(before[moved]) == {"EvictionByEvictionAPI"}
    assert await story.failures(moved) == 0


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "out of service"])
async def test_a_job_that_loses_a_dead_node_is_whole_again_before_the_collector_comes_and_counts_no_failure(
    story: Disruptions, is_deleted: bool
) -> None:
    before = await story.add("train", 3)
    lost, node = story.some_of(before)

    if is_deleted:
        await node_losses.delete(story.api, [node])
    else:
        await node_losses.put_out_of_service(story.api, [node])
    after = await story.runs("train", 3, but=lost)

    assert before - after == {lost} and story.said({lost}) == {"GangRecovery"}
    assert await story.failures("train") == 0


async def test_a_job_that_is_released_for_want_of_room_counts_no_failure(story: Disruptions) -> None:
    await story.cordon(1)
    before = await story.add("train", 2)
    lost, node = story.some_of(before)

    await node_losses.cut_off(story.api, [node])
    await story.are_removed(before)
    await node_losses.heal(story.api, [node])
    await story.is_made_anew("train", 2, before)

    assert story.said({lost}) == {"GangRecovery"} and story.said(before - {lost}) == {"EvictionByEvictionAPI"}
    assert await story.failures("train") == 0
