"""The simulated controller of claims does what that of kube-controller-manager does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gangline import model
from gangline.errors import NotFound
from gangline.kube.claim_writing import FINALIZER, ClaimWriter
from gangline.kube.resources import POD_GROUPS_V1ALPHA2, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from gangline.simulate import ClaimController, Kubelet, SimulatedClient, SimulatedCluster, running
from gangline.testing import make_pod

ALLOCATION = model.ResourceClaimAllocation(
    model.AllocatedDevices([model.AllocatedDevice("gpu.example.com", "a", "gpu-0", request="gpu")])
)
SPEC = model.ResourceClaimSpec(
    model.DeviceClaim(
        [model.DeviceRequest("gpu", model.ExactDeviceRequest("gpu", allocation_mode="ExactCount", count=1))]
    )
)
TEMPLATE = model.ResourceClaimTemplate(
    model.ObjectMeta("one-gpu", "default"),
    model.ResourceClaimTemplateSpec(model.ObjectMeta(labels={"a": "b"}, annotations={"c": "d"}), SPEC),
)


def claimant(name: str, **spec: Any) -> model.Pod:
    entry = model.PodResourceClaim("gpu", resource_claim_template_name="one-gpu")
    return make_pod(name, resource_claims=[entry], **spec)


def user(name: str, claim: str, **spec: Any) -> model.Pod:
    return make_pod(name, resource_claims=[model.PodResourceClaim("gpu", resource_claim_name=claim)], **spec)


class Story:
    """A cluster whose claims are looked after."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster()
        self.writer = ClaimWriter(SimulatedClient(self.cluster.server))

    def play(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            server = self.cluster.server
            async with running(ClaimController(server).run(), Kubelet(server, self.cluster.clock).run()):
                await story()

        self.cluster.play(whole)

    def claims(self) -> list[model.ResourceClaim]:
        return list(self.cluster.list(RESOURCE_CLAIMS))

    def made(self, pod: str) -> dict[str, str | None]:
        found = self.cluster.get(PODS, pod).status.resource_claim_statuses
        return {each.name: each.resource_claim_name for each in found}

    async def allocate(self, name: str, *pods: str) -> None:
        """What a scheduler writes for pods that share a claim."""
        claim = await self.writer.protect(self.cluster.get(RESOURCE_CLAIMS, name))
        for number, pod in enumerate(pods):
            consumer = model.ResourceClaimConsumerReference(
                resource="pods", name=pod, uid=self.cluster.get(PODS, pod).metadata.uid
            )
            if number:
                claim = await self.writer.reserve(claim, consumer)
            else:
                claim = await self.writer.allocate(claim, ALLOCATION, consumer)

    async def settle(self) -> None:
        await asyncio.sleep(5.0)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_pod_gets_its_claim_from_the_template_and_its_name_in_the_status(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE)
        story.cluster.create(PODS, claimant("p"))
        await story.settle()

    story.play(told)
    (claim,) = story.claims()
    (owner,) = claim.metadata.owner_references
    assert story.made("p") == {"gpu": claim.metadata.name}
    assert claim.metadata.name.startswith("p-gpu-") and claim.spec == SPEC
    assert (owner.kind, owner.name, owner.controller) == ("Pod", "p", True)
    assert owner.uid == story.cluster.get(PODS, "p").metadata.uid
    assert claim.metadata.labels == {"a": "b"}
    assert claim.metadata.annotations == {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"}


def test_a_template_that_comes_later_makes_the_claims_then(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(PODS, claimant("p"), claimant("q"))
        await story.settle()
        assert story.claims() == [] and story.made("p") == {}
        story.cluster.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE)
        await story.settle()

    story.play(told)
    assert {story.made("p")["gpu"], story.made("q")["gpu"]} == {each.metadata.name for each in story.claims()}


def test_a_claim_that_somebody_deleted_is_made_again(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE)
        story.cluster.create(PODS, claimant("p"))
        await story.settle()
        (first,) = story.claims()
        story.cluster.server.delete(RESOURCE_CLAIMS, first.metadata.name)
        await story.settle()
        assert story.made("p") != {"gpu": first.metadata.name}

    story.play(told)
    assert story.made("p") == {"gpu": story.claims()[0].metadata.name}


def test_the_claim_of_a_pod_goes_with_the_pod(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE)
        story.cluster.create(PODS, claimant("p"))
        await story.settle()
        await story.allocate(str(story.made("p")["gpu"]), "p")
        story.cluster.server.delete(PODS, "p")
        await story.settle()

    story.play(told)
    assert story.claims() == []


def test_the_claim_of_a_pod_that_has_ended_goes_at_once(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE)
        story.cluster.create(PODS, claimant("p"))
        await story.settle()
        await story.allocate(str(story.made("p")["gpu"]), "p")
        story.cluster.server.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, subresource="status")
        await story.settle()

    story.play(told)
    assert story.claims() == [] and story.cluster.get(PODS, "p").status.phase == "Succeeded"


def test_a_shared_claim_keeps_its_devices_until_its_last_pod_is_gone(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(RESOURCE_CLAIMS, model.ResourceClaim(model.ObjectMeta("shared", "default"), SPEC))
        story.cluster.create(PODS, user("p", "shared"), user("q", "shared"))
        await story.allocate("shared", "p", "q")
        story.cluster.server.delete(PODS, "p")
        await story.settle()
        (claim,) = story.claims()
        assert [each.name for each in claim.status.reserved_for] == ["q"] and claim.status.allocation == ALLOCATION
        story.cluster.server.delete(PODS, "q")
        await story.settle()

    story.play(told)
    (claim,) = story.claims()
    assert claim.status.allocation is None and claim.status.reserved_for == [] and claim.metadata.finalizers == []


def test_a_claim_that_is_deleted_while_it_is_used_goes_after_its_last_pod(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(RESOURCE_CLAIMS, model.ResourceClaim(model.ObjectMeta("own", "default"), SPEC))
        story.cluster.create(PODS, user("p", "own"))
        await story.allocate("own", "p")
        story.cluster.server.delete(RESOURCE_CLAIMS, "own")
        await story.settle()
        assert story.claims()[0].status.allocation == ALLOCATION and FINALIZER in story.claims()[0].metadata.finalizers
        story.cluster.server.delete(PODS, "p")
        await story.settle()

    story.play(told)
    assert story.claims() == []


def test_a_claim_with_devices_that_nobody_ever_used_keeps_them(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(RESOURCE_CLAIMS, model.ResourceClaim(model.ObjectMeta("own", "default"), SPEC))
        story.cluster.create(PODS, user("p", "own"))
        await story.allocate("own", "p")
        claim = story.cluster.get(RESOURCE_CLAIMS, "own")
        await story.writer.release(claim, claim.status.reserved_for[0].uid)
        await story.settle()

    story.play(told)
    assert story.claims()[0].status.allocation == ALLOCATION


def test_a_pod_that_somebody_put_on_a_node_reserves_a_claim_that_has_devices(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(RESOURCE_CLAIMS, model.ResourceClaim(model.ObjectMeta("own", "default"), SPEC))
        story.cluster.create(PODS, user("p", "own"), user("q", "own", node="a"))
        await story.allocate("own", "p")
        story.cluster.server.patch(PODS, "q", {"metadata": {"labels": {"a": "b"}}})
        await story.settle()

    story.play(told)
    assert [each.name for each in story.claims()[0].status.reserved_for] == ["p", "q"]


def test_pods_without_claims_are_left_alone(story: Story) -> None:
    async def told() -> None:
        story.cluster.create(PODS, make_pod("p"))
        before = story.cluster.server.version
        await story.settle()
        assert story.cluster.server.version == before

    story.play(told)
    with pytest.raises(NotFound):
        story.cluster.get(RESOURCE_CLAIMS, "p")


def in_group(pod: model.Pod, group: str = "g") -> model.Pod:
    pod.spec.scheduling_group = model.SchedulingGroup(group)
    return pod


def group_of(*entries: model.PodResourceClaim) -> model.PodGroup:
    return model.PodGroup(model.ObjectMeta("g", "default"), model.PodGroupSpec(resource_claims=list(entries)))


@pytest.mark.parametrize(
    ("entry", "names"),
    [("gpu", {"g-gpu"}), ("other", {"p-gpu", "q-gpu"})],
    ids=["an entry of the group", "an entry of its own"],
)
def test_pods_share_the_claim_that_is_made_for_their_group(entry: str, names: set[str]) -> None:
    story = Story()
    story.cluster.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE)
    story.cluster.create(PODS, in_group(claimant("late"), "another"))
    story.cluster.create(POD_GROUPS_V1ALPHA2, group_of(model.PodResourceClaim(entry, None, "one-gpu")))
    story.cluster.create(PODS, in_group(claimant("p")), in_group(claimant("q")))

    story.play(lambda: asyncio.sleep(1))

    made = [story.made(pod)["gpu"] or "" for pod in ("p", "q")]
    assert {name.rpartition("-")[0] for name in made} == names
    owners = {each.metadata.name: each.metadata.owner_references[0] for each in story.claims()}
    kind = "PodGroup" if entry == "gpu" else "Pod"
    assert {owners[name].kind for name in made} == {kind}
    assert str(story.made("late")["gpu"]).startswith("late-gpu-")
