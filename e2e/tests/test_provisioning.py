"""A gang for which the cluster is too small gets its nodes from cluster-autoscaler at once, by one ProvisioningRequest.

The test plays the autoscaler: it answers requests as cluster-autoscaler does, and adds nodes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from gangline_e2e import provisioning
from gangline_e2e.api import Api, connect
from gangline_e2e.foreign_crds import install_foreign_kind
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.provisioning import CLASS, CONSUMED, PLURAL, answer, path_of
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, job, kwok_node

StartControlPlane = Callable[[Options], ControlPlane]
StartGangline = Callable[..., Gangline]
SIZE = 3

pytestmark = pytest.mark.timeout(400)


def configuration(**args: float) -> Manifest:
    plugins = [{"name": "GangPermit"}, {"name": "TopologyPlacement"}, {"name": "Provisioning"}]
    given = {"delaySeconds": 1, "backoffSeconds": 2, **args}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaseDuration": "12s", "renewDeadline": "9s", "retryPeriod": "500ms"},
        "profiles": [
            {
                "schedulerName": "gangline",
                "plugins": {"multiPoint": {"enabled": plugins}},
                "pluginConfig": [{"name": "Provisioning", "args": given}],
            }
        ],
    }


@dataclass(frozen=True, slots=True)
class Story:
    """A cluster with a node that is too small, and the user, the autoscaler and the schedulers at work on it."""

    api: Api
    start: Callable[..., Gangline]

    async def submit(self, name: str) -> None:
        """A Job whose pods start together; each wants a node for itself."""
        pod = gpu_pod(name, gpus=8, scheduler_name="gangline")
        await self.api.create(job(name, pod, parallelism=SIZE, annotations={"gangline.dev/gang": "true"}))

    async def requested(self, attempt: int = 1) -> Manifest:
        """The only request that there is, once it is the one with this number."""

        async def only() -> Manifest | None:
            found = await self.api.list(path_of(self.api))
            return found[0] if len(found) == 1 and found[0]["metadata"]["name"].endswith(f"-{attempt}") else None

        return await self.api.until(only, f"there is request {attempt} alone")

    async def template(self) -> Manifest:
        """The only PodTemplate of the namespace, once it is there: it is written after the request."""

        async def only() -> Manifest | None:
            found = await self.templates()
            return found[0] if len(found) == 1 else None

        return await self.api.until(only, "there is one template")

    async def templates(self) -> list[Manifest]:
        """All PodTemplates of the namespace."""
        return await self.api.list(f"/api/v1/namespaces/{self.api.namespace}/podtemplates")

    async def told(self, request: Manifest) -> None:
        """Wait until all pods say which request asks for their room."""
        expected = {CONSUMED: request["metadata"]["name"], CLASS: request["spec"]["provisioningClassName"]}

        def says(pod: Manifest) -> bool:
            return expected.items() <= pod["metadata"].get("annotations", {}).items()

        await self.api.wait_for(self.api.pods, says, SIZE)

    async def carry_out(self, request: Manifest) -> None:
        """The autoscaler brings the nodes."""
        name, pods = request["metadata"]["name"], sum(each["count"] for each in request["spec"]["podSets"])
        await answer(self.api, name, "Accepted")
        await self.api.create_many(kwok_node(f"new-{number}") for number in range(pods))
        await answer(self.api, name, "Accepted", "Provisioned")

    async def none_left(self) -> None:
        """Wait until there is no request."""

        async def is_empty() -> bool:
            return not await self.api.list(path_of(self.api))

        await self.api.until(is_empty, "requests are gone", 90)

    async def collected(self) -> None:
        """Wait until there is no template; the garbage collector looks for new kinds of owners every 30 s."""

        async def is_empty() -> bool:
            return not await self.templates()

        await self.api.until(is_empty, "templates are gone", 90)

    async def notes(self, reason: str) -> list[str]:
        """What the events with this reason say."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.api.namespace}/events"
        return [each["note"] for each in await self.api.list(path, fieldSelector=f"reason={reason}")]


@pytest.fixture
async def story(start_control_plane: StartControlPlane, start_gangline: StartGangline) -> AsyncIterator[Story]:
    plane = start_control_plane(Options(controller_manager=True))
    async with connect(plane.kubeconfig) as api:
        await install(api)
        await install_foreign_kind(api, PLURAL)
        await api.create(kwok_node("small", gpus=2))

        def start(args: dict[str, float] | None = None, **options: bool) -> Gangline:
            return start_gangline(plane.kubeconfig, configuration(**(args or {})), **options)

        yield Story(api, start)


async def test_the_autoscaler_brings_the_nodes_of_a_whole_gang(story: Story) -> None:
    story.start()
    await story.submit("train")

    request = await story.requested()
    assert [each["count"] for each in request["spec"]["podSets"]] == [SIZE]
    template = await story.template()
    assert template["metadata"]["name"] == request["spec"]["podSets"][0]["podTemplateRef"]["name"]
    assert template["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    await story.told(request)
    await story.carry_out(request)

    pods = await story.api.wait_for(story.api.pods, is_bound, SIZE)
    assert {pod["spec"]["nodeName"] for pod in pods} == {f"new-{number}" for number in range(SIZE)}
    await story.none_left()


async def test_a_request_that_fails_is_told_and_followed_by_another(story: Story) -> None:
    story.start()
    await story.submit("train")

    first = await story.requested(1)
    await answer(story.api, first["metadata"]["name"], "Failed", message="no zone has so many nodes")
    second = await story.requested(2)
    await story.told(second)

    async def is_told() -> bool:
        said = f"ProvisioningRequest {first['metadata']['name']} is failed (Failed: no zone has so many nodes)"
        return any(note.startswith(said) for note in await story.notes("ProvisioningFailed"))

    await story.api.until(is_told, "there is an event")
    await story.carry_out(second)
    await story.api.wait_for(story.api.pods, is_bound, SIZE)
    await story.none_left()


async def test_two_replicas_make_one_request_and_the_next_leader_goes_on_with_it(story: Story) -> None:
    leader, _ = story.start(leader_elect=True), story.start(leader_elect=True)
    await story.submit("train")

    request = await story.requested()
    leader.kill()
    await story.told(request)
    assert [each["metadata"]["uid"] for each in await story.api.list(path_of(story.api))] == [
        request["metadata"]["uid"]
    ]
    await story.carry_out(request)
    await story.api.wait_for(story.api.pods, is_bound, SIZE)
    await story.none_left()


async def test_with_its_job_the_request_is_collected_even_if_no_scheduler_runs(story: Story) -> None:
    scheduler = story.start()
    await story.submit("train")
    request = await story.requested()
    await story.template()
    await story.told(request)
    assert [owner["kind"] for owner in request["metadata"]["ownerReferences"]] == ["Job"]
    scheduler.stop()

    await story.api.request(
        "DELETE",
        f"/apis/batch/v1/namespaces/{story.api.namespace}/jobs/train",
        {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"},
    )

    await story.none_left()
    await story.collected()


async def test_a_cluster_without_the_definition_gets_it_later_and_the_gang_gets_its_request(story: Story) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{provisioning.PLURAL}.{provisioning.GROUP}"
    await story.api.delete(path)

    async def is_gone() -> bool:
        return not any(
            each["metadata"]["name"].startswith(provisioning.PLURAL)
            for each in await story.api.list("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        )

    await story.api.until(is_gone, "the definition is gone")
    story.start()
    await story.submit("train")

    async def is_told() -> bool:
        return any(
            "does not serve ProvisioningRequests" in note for note in await story.notes("ProvisioningNotRequested")
        )

    await story.api.until(is_told, "there is an event")
    await install_foreign_kind(story.api, PLURAL)

    async def is_there() -> bool:
        return bool(await story.api.list(path_of(story.api)))

    await story.api.until(is_there, "there is a request")
