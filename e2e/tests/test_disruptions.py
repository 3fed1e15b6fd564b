"""A Job that may not fail ignores disruptions: whoever takes its pods off a node, none of them counts as a failure.

The Job controller creates the next pods late, all the same: ten seconds after one pod has failed, twice as long after
each further one. So the Jobs are small here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
import yaml

import gangline_profiles
from gangline_e2e import gangs, node_losses
from gangline_e2e.api import Api, connect
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, priority_class

StartControlPlane = Callable[[Options], ControlPlane]
DISRUPTION_TARGET = "DisruptionTarget"
PATIENCE_OF_THE_COLLECTOR = 20.0
"""Seconds: kube-controller-manager lets pods of dead nodes go only after more than this."""
RULE = {"action": "Ignore", "onPodConditions": [{"type": DISRUPTION_TARGET, "status": "True"}]}

pytestmark = pytest.mark.timeout(240)


class Story:
    """Two leaves of two nodes, the packaged scheduler, and what pods said of themselves when they were removed."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.reasons: dict[str, str] = {}
        """By UID of each removed pod: the reason in its condition DisruptionTarget at that moment, "" without one."""
        self._pods: dict[str, Manifest] = {}

    async def follow(self) -> None:
        """Note every pod of the namespace until this is cancelled."""
        async for event, pod in self.api.watch(self.api.pods):
            if event == "RESTART":
                continue
            uid = pod["metadata"]["uid"]
            if event == "DELETED" or "deletionTimestamp" in pod["metadata"]:
                self.reasons.setdefault(uid, _reason(pod))
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod

    async def add(self, name: str, size: int, gpus: int = 8, **annotations: str) -> set[str]:
        """A Job that may not fail and ignores disruptions, once its pods are bound; returns their UIDs."""
        notes = {f"gangline.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        rules: dict[str, Any] = {"backoffLimit": 0, "podFailurePolicy": {"rules": [RULE]}}
        manifest = gangs.job_of(name, size, gpus, notes, completionMode="Indexed", **rules)
        manifest["spec"]["template"]["metadata"]["annotations"] = notes
        await self.api.create(manifest)
        return await self.runs(name, size)

    async def runs(self, name: str, size: int, but: str = "") -> set[str]:
        """Wait until so many pods of the Job, all but one, have nodes; returns their UIDs."""

        async def are_bound() -> set[str]:
            found = {uid for uid in self._of(name) if is_bound(self._pods[uid]) and uid != but}
            return found if len(found) == size else set()

        return await self.api.until(are_bound, f"{size} pods of {name} have nodes", timeout_s=60)

    async def is_made_anew(self, name: str, size: int, before: set[str]) -> None:
        """Wait until the Job has as many pods as it wants, none of them one of `before`."""

        async def all_are_new() -> bool:
            found = self._of(name)
            return len(found) == size and found.isdisjoint(before)

        await self.api.until(all_are_new, f"{name} has {size} new pods", timeout_s=60)

    async def are_removed(self, uids: set[str]) -> None:
        """Wait until all of these pods are being deleted."""

        async def are_all() -> bool:
            return uids <= self.reasons.keys()

        await self.api.until(are_all, "the pods are being deleted", timeout_s=60)

    async def failures(self, name: str) -> int:
        """How many failed pods the Job counts, once it has counted all."""

        async def counted() -> Manifest | None:
            status = (await self.api.get(f"/apis/batch/v1/namespaces/{self.api.namespace}/jobs/{name}"))["status"]
            is_counting = any(status.get("uncountedTerminatedPods", {}).values()) or status.get("terminating")
            return None if is_counting else status

        status = await self.api.until(counted, f"{name} has counted its pods", timeout_s=60)
        assert not any(each["type"] == "Failed" for each in status.get("conditions") or []), status
        failed: int = status.get("failed", 0)
        return failed

    def said(self, uids: set[str]) -> set[str]:
        """The reasons that these removed pods had."""
        return {self.reasons[uid] for uid in uids}

    def some_of(self, uids: set[str]) -> tuple[str, str]:
        """One of these pods, by UID, and its node."""
        uid = min(uids)
        return uid, self._pods[uid]["spec"]["nodeName"]

    async def cordon(self, leaf: int | None = None) -> None:
        """No pod comes to this leaf any more, and pods may come to the other one; to both, if none is named."""
        for each in range(2):
            for number in range(2):
                patch = {"spec": {"unschedulable": each == leaf}}
                await self.api.merge(f"{node_losses.NODES}/s0-l{each}-n{number}", patch)

    def _of(self, name: str) -> set[str]:
        return {uid for uid, pod in self._pods.items() if pod["metadata"].get("labels", {}).get(gangs.GANG) == name}


@pytest.fixture
async def story(start_control_plane: StartControlPlane, start_gangline: Callable[..., Any]) -> AsyncIterator[Story]:
    plane = start_control_plane(Options(controller_manager=True))
    async with connect(plane.kubeconfig) as api:
        await install(api)
        await api.create(priority_class("urgent", 100))
        await api.create_many(gangs.fabric(spines=1, leaves=2, nodes=2))
        start_gangline(plane.kubeconfig, _configuration())
        found = Story(api)
        following = asyncio.create_task(found.follow())
        try:
            yield found
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following


def _configuration() -> Manifest:
    config: dict[str, Any] = yaml.safe_load(gangline_profiles.read(gangs.PROFILE))
    config["profiles"][0]["pluginConfig"] += [
        {"name": "Recovery", "args": {"graceSeconds": 0.5, "releaseSeconds": 3}},
        {"name": "Defragmentation", "args": {"intervalSeconds": 1}},
    ]
    return config


def _reason(pod: Manifest) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((each["reason"] for each in conditions if each["type"] == DISRUPTION_TARGET), "")


async def test_a_job_that_a_pod_preempts_counts_no_failure(story: Story) -> None:
    await story.cordon(1)
    before = await story.add("train", 2)

    spec = {"priorityClassName": "urgent"}
    await story.api.create(gpu_pod("urgent", gpus=8, scheduler_name=gangs.PROFILE, spec=spec))
    await story.is_made_anew("train", 2, before)

    assert story.said(before) == {"PreemptionByScheduler"}
    assert await story.failures("train") == 0


async def test_jobs_that_a_gang_preempts_count_no_failures(story: Story) -> None:
    before = {name: await story.add(name, 2, topology_required="leaf") for name in ("train", "other")}

    urgent = gangs.job_of("urgent", 4, 8, {}, completionMode="Indexed")
    urgent["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    await story.api.create(urgent)
    await story.runs("urgent", 4)

    for name, pods in before.items():
        await story.is_made_anew(name, 2, pods)
        assert story.said(pods) == {"PreemptionByScheduler"}
        assert await story.failures(name) == 0


async def test_a_job_that_is_moved_aside_counts_no_failure(story: Story) -> None:
    before = {}
    for name, closed in (("first", 1), ("second", 0)):
        await story.cordon(closed)
        before[name] = await story.add(name, 1, gpus=1)
        await story.cordon()
    await story.add("big", 2, topology_required="leaf")

    after = {name: await story.runs(name, 1) for name in before}
    (moved,) = (name for name in before if before[name] != after[name])
    assert story.said(before[moved]) == {"EvictionByEvictionAPI"}
    assert await story.failures(moved) == 0


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "out of service"])
async def test_a_job_that_loses_a_dead_node_is_whole_again_in_seconds_and_counts_no_failure(
    story: Story, is_deleted: bool
) -> None:
    before = await story.add("train", 3)
    lost, node = story.some_of(before)

    began = time.monotonic()
    if is_deleted:
        await node_losses.delete(story.api, [node])
    else:
        await node_losses.put_out_of_service(story.api, [node])
    after = await story.runs("train", 3, but=lost)

    assert time.monotonic() - began < PATIENCE_OF_THE_COLLECTOR
    assert before - after == {lost} and story.said({lost}) == {"GangRecovery"}
    assert await story.failures("train") == 0


async def test_a_job_that_is_released_for_want_of_room_counts_no_failure(story: Story) -> None:
    await story.cordon(1)
    before = await story.add("train", 2)
    lost, node = story.some_of(before)

    await node_losses.cut_off(story.api, [node])
    await story.are_removed(before)
    await node_losses.heal(story.api, [node])
    await story.is_made_anew("train", 2, before)

    assert story.said({lost}) == {"GangRecovery"} and story.said(before - {lost}) == {"EvictionByEvictionAPI"}
    assert await story.failures("train") == 0
