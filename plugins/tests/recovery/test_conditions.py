"""What the status of a gang says while it recovers, and afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

from framework.tests.gang_cluster import ONE_LEAF

from gangline import model
from gangline.errors import Unavailable
from gangline.kube.resources import POD_GROUPS_V1BETA1, PODS, Resource
from gangline.testing import make_pod
from gangline_plugins.recovery.conditions import RECOVERING

from .recovery_cases import LossStory

SOON = 15.0


class Stories(LossStory):
    """Reads conditions."""

    def of_pods(self) -> list[tuple[str, str]]:
        """Status and reason of the condition of each pod that has it."""
        found = [each for pod in self.list(PODS) for each in pod.status.conditions if each.type == RECOVERING]
        return [(each.status, each.reason) for each in found]

    def of_group(self) -> list[tuple[str, str, str]]:
        """Status, reason and message of the condition of the PodGroup."""
        group = self.get(POD_GROUPS_V1BETA1, "train", "default")
        return [(each.status, each.reason, each.message) for each in group.status.conditions if each.type == RECOVERING]

    def add_upstream(self, size: int) -> None:
        """A gang with a PodGroup of Kubernetes."""
        gang = model.PodGroupSpec(model.PodGroupPolicy(model.PodGroupGang(size)))
        self.create(POD_GROUPS_V1BETA1, model.PodGroup(model.ObjectMeta("train", "default"), gang))
        notes = {**ONE_LEAF, "gangline.dev/recovery": "replace"}
        for number in range(size):
            pod = make_pod(f"train-{number}", gpus=8, annotations=notes, scheduler_name="gangs")
            pod.spec.scheduling_group = model.SchedulingGroup("train")
            self.create(PODS, pod)


def test_the_members_that_run_on_say_what_is_done_until_it_is_done() -> None:
    cluster = Stories()

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        cluster.fail(cluster.node_of("train", 0))
        await cluster.until(lambda: cluster.of_pods() == [("True", "GangRecovering")] * 2, SOON)
        await cluster.until(lambda: cluster.of_pods() == [("False", "GangRecovered")] * 2, SOON)

    cluster.play(story)


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

    def refuse(verb: str, resource: Resource[Any], name: str) -> Exception | None:
        refused = is_out and verb == "patch" and resource is POD_GROUPS_V1BETA1
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
