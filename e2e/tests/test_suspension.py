"""Jobs that ask for it are suspended instead of losing pod by pod: no pod counts as failed, and none comes late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gangline_e2e import node_losses
from gangline_e2e.disruptions import ONE_LEAF, SUSPEND, Disruptions, configuration, furnished
from gangline_e2e.foreign_crds import install_foreign_kind
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.kueue import PlayedKueue
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest

StartControlPlane = Callable[[Options], ControlPlane]
LEAF = 5
WANTS = {**ONE_LEAF, **SUSPEND}

ARGUMENTS: dict[str, Manifest] = {"Recovery": {"graceSeconds": 0.5}, "Suspension": {"resumeSeconds": 3600}}

pytestmark = pytest.mark.timeout(500)


@dataclass(frozen=True, slots=True)
class Suspensions:
    """Two leaves of five nodes, and the packaged scheduler."""

    jobs: Disruptions
    scheduler: Gangline

    async def is_resumed(self, job: str) -> None:
        """Wait until a Job runs again, and nothing on it speaks of a suspension."""

        async def is_as_before() -> bool:
            found = await self.jobs.api.get(self.jobs.path(job))
            notes = found["metadata"].get("annotations", {})
            return not found["spec"].get("suspend") and not any("susp" in key for key in notes)

        await self.jobs.api.until(is_as_before, f"{job} is resumed")


@pytest.fixture
async def story(
    start_control_plane: StartControlPlane, start_gangline: Callable[..., Any]
) -> AsyncIterator[Suspensions]:
    plane = start_control_plane(Options(controller_manager=True))
    async with furnished(plane.kubeconfig, nodes=LEAF) as found:
        await install_foreign_kind(found.api, "workloads")
        yield Suspensions(found, start_gangline(plane.kubeconfig, configuration(**ARGUMENTS)))


async def test_a_preempted_job_is_suspended_and_starts_again_when_there_is_room(story: Suspensions) -> None:
    jobs = story.jobs
    await jobs.cordon(1)
    before = await jobs.add("train", LEAF, WANTS)

    await jobs.add_urgent(LEAF)
    was_suspended = await jobs.is_suspended("train")
    await jobs.end("urgent")
    await jobs.is_made_anew("train", LEAF, before)
    await jobs.runs("train", LEAF)

    await story.is_resumed("train")
    assert was_suspended and jobs.said(before) == {"PreemptionByScheduler"}
    assert await jobs.failures("train") == 0
    await jobs.have_events("train", {"SuspendedByScheduler", "ResumedByScheduler"})


async def test_a_scheduler_that_takes_over_resumes_what_the_last_one_suspended(story: Suspensions) -> None:
    jobs = story.jobs
    await jobs.cordon(1)
    before = await jobs.add("train", LEAF, WANTS)

    await jobs.add_urgent(LEAF)
    story.scheduler.kill()
    await jobs.end("urgent")
    was_suspended = await jobs.is_suspended("train")
    await asyncio.to_thread(story.scheduler.start)
    await jobs.is_made_anew("train", LEAF, before)
    await jobs.runs("train", LEAF)

    assert was_suspended and await jobs.failures("train") == 0


async def test_a_job_that_moves_to_another_leaf_does_not_wait_for_the_backoff_of_its_controller(
    story: Suspensions,
) -> None:
    """Which would be 160 s, longer than any wait here: five pods fail."""
    jobs = story.jobs
    before = await jobs.add("train", LEAF, WANTS)
    _, node = jobs.some_of(before)

    await node_losses.delete(jobs.api, [node])
    await jobs.is_made_anew("train", LEAF, before)
    await jobs.runs("train", LEAF)

    await story.is_resumed("train")
    assert jobs.said(before) == {"GangRecovery"}
    assert await jobs.failures("train") == 0


async def test_who_resumes_a_job_by_hand_wins(story: Suspensions) -> None:
    jobs = story.jobs
    await jobs.cordon(1)
    before = await jobs.add("train", LEAF, WANTS)

    await jobs.add_urgent(LEAF)
    await jobs.api.merge(jobs.path("train"), {"spec": {"suspend": False}})
    await jobs.is_made_anew("train", LEAF, before)

    await story.is_resumed("train")
    assert "ResumedByScheduler" not in await jobs.events_of("train")


async def test_what_kueue_has_admitted_is_taken_off_and_admitted_again_by_kueue(story: Suspensions) -> None:
    jobs, kueue = story.jobs, PlayedKueue(story.jobs.api, "train")
    await jobs.cordon(1)
    before = await jobs.add("train", LEAF, WANTS)
    await kueue.manage()

    urgent = asyncio.create_task(jobs.add_urgent(LEAF))
    await kueue.take_off()
    await kueue.admit_again()
    await urgent
    await jobs.is_made_anew("train", LEAF, before)
    await jobs.end("urgent")
    await jobs.runs("train", LEAF)

    assert jobs.said(before) == {"PreemptionByScheduler"}
    assert await jobs.failures("train") == 0

    async def is_as_before() -> bool:
        return not any("susp" in key for key in (await kueue.workload())["metadata"].get("annotations", {}))

    await jobs.api.until(is_as_before, "nothing on the Workload speaks of a suspension")
