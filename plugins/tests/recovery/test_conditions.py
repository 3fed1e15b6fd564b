"""What the status of a gang says while it recovers, and afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import ApiError, Unavailable, model, resources
from gangline.testing import make_pod
from gangline.testing.gang_stories import ONE_LEAF
from gangline_plugins.recovery.conditions import RECOVERING

from .recovery_cases import LossStory

SOON = 15.0


class Stories(LossStory):
    """Reads conditions."""

    def of_pods(self) -> list[tuple[str, str]]:
        """Status and reason of the condition of each pod that has it."""
        found = [each for pod in self.list(resources.PODS) for each in pod.status.conditions if each.type == RECOVERING]
        return [(each.status, each.reason) for each in found]

    def of_group(self) -> list[tuple[str, str, str]]:
        """Status, reason and message of the condition of the PodGroup."""
        group = self.get(resources.POD_GROUPS_V1BETA1, "train", "default")
        return [(each.status, each.reason, each.message) for each in group.status.conditions if each.type == RECOVERING]

    def add_upstream(self, size: int) -> None:
        """A gang with a PodGroup of Kubernetes."""
        gang = model.PodGroupSpec(model.PodGroupPolicy(model.PodGroupGang(size)))
        self.create(resources.POD_GROUPS_V1BETA1, model.PodGroup(model.ObjectMeta("train", "default"), gang))
        for number in range(size):
            self.create(resources.PODS, self.upstream_pod(number))

    def upstream_pod(self, number: int) -> model.Pod:
        """A member of this gang."""
        notes = {**ONE_LEAF, "gangline.dev/recovery": "replace"}
        pod = make_pod(f"train-{number}", gpus=8, annotations=notes, scheduler_name="gangs")
        pod.spec.scheduling_group = model.SchedulingGroup("train")
        return pod


def test_the_members_that_run_on_say_what_is_done_until_it_is_done() -> None:
    said = []

    def note(verb: str, resource: resources.Resource[Any], name: str) -> None:
        """What the members say when the scheduler asks for anything."""
        said.append(cluster.of_pods())

    cluster = Stories(faults=note)

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        cluster.fail(cluster.node_of("train", 0))
        await cluster.until(lambda: cluster.of_pods() == [("False", "GangRecovered")] * 2, SOON)

    cluster.play(story)

    assert [("True", "GangRecovering")] * 2 in said


def test_the_object_of_the_group_says_that_it_waits_and_when_the_others_are_released() -> None:
    cluster = Stories(leaves=1, releaseSeconds=100)

    async def story() -> None:
        cluster.add_upstream(4)
        await cluster.runs("train", 4)
        cluster.fail("l0-n2")
        await cluster.until(lambda: bool(cluster.of_group()), SOON)
        ((status, reason, message),) = cluster.of_group()
        assert (status, reason) == ("True", "GangRecoveryWaits") and not cluster.of_pods()
        assert "it is tried again within 30 s; the other members are released in 90 s" in message
        cluster.fail("l0-n2", status="True")
        await cluster.until(lambda: [each[0] for each in cluster.of_group()] == ["False"], 45.0)

    cluster.play(story)


def test_a_condition_that_cannot_be_written_for_a_while_is_written_later() -> None:
    is_out = False

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        refused = is_out and verb == "patch" and resource is resources.POD_GROUPS_V1BETA1
        return Unavailable(503, "ServiceUnavailable", "no") if refused else None

    cluster = Stories(leaves=1, faults=refuse)

    async def story() -> None:
        nonlocal is_out
        cluster.add_upstream(4)
        await cluster.runs("train", 4)
        cluster.fail("l0-n2")
        await cluster.until(lambda: bool(cluster.of_group()), SOON)
        is_out = True
        cluster.fail("l0-n2", status="True")
        await asyncio.sleep(60.0)
        assert [each[0] for each in cluster.of_group()] == ["True"]
        is_out = False
        await cluster.until(lambda: [each[0] for each in cluster.of_group()] == ["False"], SOON)

    cluster.play(story)


def test_the_next_scheduler_ends_what_the_last_one_has_left_behind() -> None:
    cluster = Stories(leaves=1)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        lost = cluster.node_of("train", 0)
        cluster.fail(lost)
        await cluster.until(lambda: cluster.of_pods() == [("True", "GangRecoveryWaits")] * 4, SOON)
        await cluster.stop()
        cluster.fail(lost, status="True")
        await asyncio.sleep(1.0)
        await cluster.restart()
        await cluster.until(lambda: cluster.of_pods() == [("False", "GangRecovered")] * 4, SOON)

    cluster.play(story)


@pytest.mark.parametrize("is_upstream", [True, False])
def test_a_gang_recovers_until_its_release_has_happened_not_until_it_was_announced(is_upstream: bool) -> None:
    is_out = True

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return Unavailable(503, "", "no") if is_out and verb == "evict" else None

    cluster = Stories(leaves=1, releaseSeconds=60, roomSeconds=10, faults=refuse)

    async def story() -> None:
        nonlocal is_out
        if is_upstream:
            cluster.add_upstream(4)
        else:
            cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        before = cluster.uids("train")
        cluster.fail("l0-n2")
        await cluster.until(lambda: len(cluster.told_as("GangReleased")) == 3, 75.0)
        await asyncio.sleep(60.0)
        said = [each[:2] for each in cluster.of_group()] if is_upstream else cluster.of_pods()[:1]
        assert said == [("True", "GangReleasing")] and before == cluster.uids("train")
        is_out = False
        await cluster.until(lambda: not before & cluster.uids("train"), 60.0)
        if is_upstream:
            await cluster.until(lambda: [each[:2] for each in cluster.of_group()] == [("False", "GangReleased")], SOON)
        assert len(cluster.told_as("GangReleased")) == 3

    cluster.play(story)


def test_a_gang_whose_lost_member_cannot_be_removed_is_tried_again_and_recovers_until_then() -> None:
    is_out = True

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        is_write = verb in ("patch", "delete") and resource is resources.PODS and name == "train-2"
        return ApiError(403, "Forbidden", "no") if is_out and is_write else None

    cluster = Stories(faults=refuse)

    async def story() -> None:
        nonlocal is_out
        cluster.add_upstream(3)
        await cluster.runs("train", 3)
        cluster.fail(cluster.node_of("train", 2))
        await cluster.until(lambda: bool(cluster.told_as("GangRecoveryFailed")), SOON)
        await asyncio.sleep(5.0)
        assert [each[:2] for each in cluster.of_group()] == [("True", "GangRecoveryFailed")]
        is_out = False
        await cluster.until(lambda: [each[:2] for each in cluster.of_group()] == [("True", "GangRecovering")], 35.0)

    cluster.play(story)


@pytest.mark.parametrize("is_there", [True, False], ids=["queued", "gone"])
def test_the_next_scheduler_finds_the_condition_of_a_gang_without_a_member_on_a_node(is_there: bool) -> None:
    cluster = Stories(leaves=1)

    async def story() -> None:
        cluster.add_upstream(4)
        await cluster.runs("train", 4)
        cluster.fail("l0-n2")
        await cluster.until(lambda: [each[0] for each in cluster.of_group()] == ["True"], SOON)
        await cluster.stop()
        cluster.fail("l0-n2", status="True")
        for number in range(4):
            cluster.delete_pod(f"train-{number}")
        await asyncio.sleep(60.0)
        if is_there:
            cluster.create(resources.PODS, cluster.upstream_pod(0))
        await cluster.restart()
        await cluster.until(lambda: [each[0] for each in cluster.of_group()] == ["False"], SOON)

    cluster.play(story)


def test_a_recovery_that_needs_several_attempts_is_counted_once() -> None:
    lost, refused = "", 0

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        nonlocal refused
        is_write = verb in ("patch", "delete") and resource is resources.PODS and name == lost
        refused += is_write
        return ApiError(403, "Forbidden", "no") if is_write else None

    cluster = Stories(faults=refuse)

    async def story() -> dict[str, float]:
        nonlocal lost
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        lost = min(cluster.bound("train"))
        cluster.fail(cluster.bound("train")[lost])
        await cluster.until(lambda: refused >= 3, 120.0)
        lost = ""
        await cluster.until(lambda: bool(cluster.told_as("GangRecovered")), 60.0)
        return cluster.recoveries()

    assert cluster.play(story) == {"recovered": 1.0}
    assert cluster.told_as("GangRecoveryFailed")
