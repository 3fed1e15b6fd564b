"""Gangs lose nodes on a real control plane: they are whole again in seconds, together, and nobody takes their room."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

import gangline_profiles
from gangline_e2e import gangs, node_losses
from gangline_e2e.api import Api, connect
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.node_losses import GANG, Members
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest, gpu_pod, job

StartControlPlane = Callable[[Options], ControlPlane]
StartGangline = Callable[..., Gangline]
LEAF = 8
REQUIRED = {"gangline.dev/topology-required": "leaf"}
RECOVERING = "gangline.dev/Recovering"
OPTIONS = Options(controller_manager=True)

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True, slots=True)
class Story:
    """Three leaves of eight nodes, and a scheduler that counts nodes as lost after half a second."""

    api: Api
    members: Members
    scheduler: Gangline

    def leaves(self, gang: str) -> set[str]:
        """The leaves of a gang."""
        return {node.rsplit("-", 1)[0] for node in self.members.nodes(gang)}

    def uids(self, gang: str) -> set[str]:
        """The pods of a gang."""
        return {member.uid for member in self.members.of(gang)}

    async def add(self, name: str, size: int, **annotations: str) -> None:
        """A gang in one leaf, once it is bound."""
        await self.api.create_many(
            node_losses.replicated(name, size, gangs.PROFILE, {**REQUIRED, **_prefixed(annotations)})
        )
        await self.members.whole(name, size)

    async def notes(self, reason: str) -> list[str]:
        """What the events with this reason say."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.api.namespace}/events"
        return [each["note"] for each in await self.api.list(path, fieldSelector=f"reason={reason}")]


@pytest.fixture
async def story(start_control_plane: StartControlPlane, start_gangline: StartGangline) -> AsyncIterator[Story]:
    plane = start_control_plane(OPTIONS)
    async with connect(plane.kubeconfig) as api:
        await install(api)
        await install_foreign(api)
        await api.create_many(gangs.fabric(spines=1, leaves=3, nodes=LEAF))
        scheduler = start_gangline(plane.kubeconfig, _configuration())
        async with node_losses.following(api) as members:
            yield Story(api, members, scheduler)


def _prefixed(annotations: dict[str, str]) -> dict[str, str]:
    return {f"gangline.dev/{name}": value for name, value in annotations.items()}


def _configuration() -> Manifest:
    config: dict[str, Any] = yaml.safe_load(gangline_profiles.read(gangs.PROFILE))
    config["profiles"][0]["pluginConfig"].append({"name": "Recovery", "args": {"graceSeconds": 0.5}})
    return config


async def test_lost_members_are_replaced_beside_the_others(story: Story) -> None:
    await story.add("train", 6)
    before, leaf = story.uids("train"), story.leaves("train")
    lost = sorted(story.members.nodes("train"))[:2]

    await node_losses.cut_off(story.api, lost)
    await story.members.whole("train", 6, lost)

    assert len(before & story.uids("train")) == 4 and story.leaves("train") == leaf
    await story.api.until(lambda: _noted(story, "GangRecovering", "room is kept on"), "an event says that room is kept")
    await story.api.until(lambda: _said(story, "GangRecovered"), "the members that ran on say that the gang is whole")


async def _noted(story: Story, reason: str, what: str) -> bool:
    return any(what in note for note in await story.notes(reason))


async def _said(story: Story, reason: str) -> bool:
    """Whether the condition of pods has this reason; that of at least one, and of no pod another one."""
    pods = await story.api.list(story.api.pods)
    found = [each for pod in pods for each in pod["status"].get("conditions", ()) if each["type"] == RECOVERING]
    return bool(found) and all((each["status"], each["reason"]) == ("False", reason) for each in found)


async def test_a_gang_that_fills_its_leaf_moves_as_a_whole_and_keeps_its_room(story: Story) -> None:
    await story.add("train", LEAF)
    leaf, lost = story.leaves("train"), sorted(story.members.nodes("train"))[:1]

    await node_losses.delete(story.api, lost)
    await story.api.until(lambda: story.notes("GangRecovering"), "the recovery has begun")
    greedy = [gpu_pod(f"greedy-{n}", gpus=8, scheduler_name=gangs.PROFILE, labels={GANG: "greedy"}) for n in range(16)]
    await story.api.create_many(greedy)
    await story.members.whole("train", LEAF, lost)

    assert len(story.leaves("train")) == 1 and story.leaves("train") != leaf
    await story.members.whole("greedy", 15)  # one node is gone


async def test_with_the_policy_restart_all_members_start_anew_on_nodes_that_are_kept(story: Story) -> None:
    await story.add("train", 5, recovery="restart")
    before, nodes = story.uids("train"), story.members.nodes("train")
    lost = sorted(nodes)[:1]

    await node_losses.cut_off(story.api, lost)
    await story.api.until(lambda: _gone(story, before), "all members have started anew")
    await story.members.whole("train", 5, lost)

    assert len(story.leaves("train")) == 1


async def _gone(story: Story, before: set[str]) -> bool:
    return not before & story.uids("train")


async def test_a_job_that_ignores_disruptions_is_whole_again_though_it_may_not_fail(story: Story) -> None:
    pod = gpu_pod("worker", gpus=8, scheduler_name=gangs.PROFILE, labels={GANG: "work"}, annotations=REQUIRED)
    manifest = job("work", pod, parallelism=4, annotations=REQUIRED)
    manifest["spec"]["completionMode"] = "Indexed"
    manifest["spec"]["backoffLimit"] = 0
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    manifest["spec"]["podFailurePolicy"] = {"rules": [rule]}
    await story.api.create(manifest)
    await story.members.whole("work", 4)
    lost = sorted(story.members.nodes("work"))[:1]

    await node_losses.delete(story.api, lost)
    await story.members.whole("work", 4, lost)

    found = await story.api.get(f"/apis/batch/v1/namespaces/{story.api.namespace}/jobs/work")
    assert not any(each["type"] == "Failed" for each in found["status"].get("conditions") or [])


async def test_a_scheduler_that_is_killed_while_gangs_recover_finds_them_when_it_is_back(story: Story) -> None:
    chance = random.Random(3)
    for name, size in (("first", LEAF), ("second", 5)):
        await story.add(name, size)
    lost = [chance.choice(sorted(story.members.nodes(name))) for name in ("first", "second")]

    await node_losses.cut_off(story.api, lost)
    await story.api.until(lambda: story.notes("GangRecovering"), "a recovery has begun")
    story.scheduler.kill()
    await asyncio.to_thread(story.scheduler.start)
    await asyncio.gather(story.members.whole("first", LEAF, lost), story.members.whole("second", 5, lost))

    assert len(story.leaves("first")) == len(story.leaves("second")) == 1
