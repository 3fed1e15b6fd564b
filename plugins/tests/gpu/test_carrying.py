"""GpuClaims that name a DeviceClass: a ResourceClaim gives their pods devices, and nothing else does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import claim_templates, custom_resources, model, resources
from gangline.testing import make_node, make_pod

from .carrying_cases import ISLAND, WITH_CLAIMS, WITHOUT, CarryingCluster, carried
from .gpu_cases import claim

GANG = {"gang.scheduling.koordinator.sh/name": "a", "gang.scheduling.koordinator.sh/min-available": "4"}


def test_a_pod_gets_the_devices_of_its_claim_by_a_resource_claim_and_no_lease() -> None:
    cluster = CarryingCluster(a=4)

    async def story() -> None:
        cluster.add(carried(count=2))
        await cluster.simulated.until(lambda: len(cluster.templates()) == 1)
        cluster.pod("p")
        await cluster.bound("p")
        await cluster.simulated.until(lambda: cluster.claim().status.phase == "Bound")

    cluster.play(story)
    assert cluster.given() == [("a", "gpu-0"), ("a", "gpu-1")] and cluster.leases() == []
    status = cluster.claim().status
    assert (status.node_name, status.allocated, status.gpu_ids) == ("a", "a:gpu-0,gpu-1", [])
    assert status.message.startswith("ResourceClaim p-gpu-claim-")
    assert custom_resources.ALLOCATED not in (cluster.simulated.get(resources.PODS, "p").metadata.annotations or {})
    cluster.check()


def test_a_gang_is_placed_by_the_devices_of_its_resource_claims_or_not_at_all() -> None:
    cluster = CarryingCluster(a=4, b=2)

    async def story() -> None:
        cluster.add(carried(count=2))
        for number in range(4):
            cluster.pod(f"g{number}", annotations=GANG)
        await cluster.told("g0", "3 of 4 pods fit on 2 nodes")
        assert cluster.given() == []
        cluster.simulated.create(resources.NODES, make_node("c", gpus=0))
        cluster.offer("c", *map(cluster.device, range(2)))
        await cluster.bound(*(f"g{number}" for number in range(4)))

    cluster.play(story)
    assert len(cluster.given()) == 8
    cluster.check()


def test_linked_devices_are_of_one_value_of_the_link_attribute() -> None:
    cluster = CarryingCluster(a=4)

    async def story() -> None:
        cluster.add(carried("one"), carried("pair", count=2, mode="Required", links=ISLAND))
        cluster.pod("first", "one")
        await cluster.bound("first")
        cluster.pod("second", "pair")
        await cluster.bound("second")

    cluster.play(story)
    assert cluster.given() == [("a", "gpu-0"), ("a", "gpu-2"), ("a", "gpu-3")]


def test_a_claim_for_instances_gets_those_of_its_profile_and_others_whole_devices() -> None:
    cluster = CarryingCluster()
    cluster.simulated.create(resources.NODES, make_node("a", gpus=0))
    cluster.offer(
        "a", cluster.device(0, type="mig", profile="2g.20gb"), cluster.device(1, type="mig", profile="1g.10gb+me"),
        cluster.device(2),
    )  # fmt: skip

    async def story() -> None:
        cluster.add(carried("part", exclusivity="MIG", mig_profile="1g.10gb.me"), carried("whole"))
        cluster.pod("p", "part")
        await cluster.bound("p")
        assert cluster.given() == [("a", "gpu-1")]
        cluster.pod("q", "whole")
        await cluster.bound("q")

    cluster.play(story)
    assert cluster.given() == [("a", "gpu-1"), ("a", "gpu-2")]


def test_the_node_selector_of_the_claim_holds() -> None:
    cluster = CarryingCluster(a=4, b=4)

    async def story() -> None:
        cluster.add(carried(selector={"kind": "b"}), carried("nowhere", selector={"kind": "c"}))
        cluster.pod("p")
        cluster.pod("q", "nowhere")
        await cluster.bound("p")
        await cluster.told("q", "2 node(s) didn't match the claim's selector")

    cluster.play(story)
    assert cluster.simulated.bound() == {"p": "b"}


@pytest.mark.parametrize(
    ("pod", "claims", "profile", "reason", "told"),
    [
        pytest.param(
            make_pod("p", gpus=2, annotations={custom_resources.CLAIM: "claim"}),
            [carried(count=2)],
            WITH_CLAIMS,
            "GpuRequestDisagrees",
            "the pod's claim gives it devices of DeviceClass gpu.example.com, and it requests nvidia.com/gpu: 2",
            id="requests besides",
        ),
        pytest.param(
            make_pod("p", annotations={custom_resources.CLAIM: "claim"}),
            [carried()],
            WITHOUT,
            "GpuClaimNotCarriedOut",
            "profile default-scheduler has no plugin DynamicResources",
            id="no plugin for claims",
        ),
        pytest.param(
            make_pod(
                "p",
                annotations={custom_resources.CLAIM: "claim"},
                resource_claims=[model.PodResourceClaim("gpu-claim", None, "x")],
            ),
            [claim()],
            WITHOUT,
            "GpuClaimNotCarriedOut",
            'the pod has a ResourceClaim for GpuClaim "default/claim", which names no DeviceClass',
            id="the class is gone",
        ),
        pytest.param(
            make_pod("p", annotations={custom_resources.CLAIM: "claim"}),
            [carried(exclusivity="Shared")],
            WITH_CLAIMS,
            "InvalidGpuClaim",
            "Shared cannot be carried out with spec.deviceClassName",
            id="no ResourceClaim can ask for it",
        ),
    ],
)
def test_a_pod_whose_claim_cannot_be_carried_out_waits_and_is_told_why(
    pod: model.Pod, claims: list[Any], profile: str, reason: str, told: str
) -> None:
    cluster = CarryingCluster(a=4, reported=1)

    async def story() -> None:
        cluster.add(*claims)
        cluster.simulated.create(resources.PODS, pod)
        await cluster.told("p", told)

    cluster.play(story, profile=profile)
    assert reason in {each.reason for each in cluster.simulated.list(resources.EVENTS)}
    assert cluster.simulated.bound() == {} and cluster.given() == []


def test_a_pod_that_came_before_its_claim_waits_and_is_told_why() -> None:
    cluster = CarryingCluster(a=4)

    async def story() -> None:
        cluster.pod("early")
        await cluster.told("early", 'GpuClaim "default/claim" not found')
        cluster.add(carried())
        await cluster.told("early", "is carried out by DeviceClass gpu.example.com, and the pod has no ResourceClaim")

    cluster.play(story)
    assert cluster.simulated.bound() == {}


def test_a_pod_made_before_a_change_of_its_claim_keeps_its_template_and_new_ones_get_the_new_one() -> None:
    cluster = CarryingCluster(a=4)

    async def story() -> None:
        cluster.add(carried(selector={"kind": "none yet"}))
        cluster.pod("old")
        await cluster.told("old", "selector")
        change = {"spec": {"devices": {"count": 2}, "selector": {"matchLabels": {"kind": "a"}}}}
        cluster.simulated.server.patch(resources.GPU_CLAIMS, "claim", change, namespace="default")
        await cluster.simulated.until(lambda: len(cluster.templates()) == 2)
        cluster.pod("new")
        await cluster.bound("old", "new")

    cluster.play(story)
    assert len(cluster.given()) == 3


def test_a_resource_claim_that_asks_for_something_else_gives_the_pod_no_devices() -> None:
    cluster = CarryingCluster(a=4)
    wanted = carried(count=2)
    asked = claim_templates.claim_spec(msgspec.structs.replace(wanted.spec, devices=claim(count=4).spec.devices))
    template = claim_templates.template_of(wanted)
    forged = model.ResourceClaimTemplate(
        model.ObjectMeta(template.metadata.name, "default"), model.ResourceClaimTemplateSpec(spec=asked)
    )

    async def story() -> None:
        cluster.simulated.create(resources.RESOURCE_CLAIM_TEMPLATES, forged)
        cluster.add(wanted)
        cluster.pod("p")
        await cluster.told("p", 'asks for something else than GpuClaim "default/claim" did')
        await cluster.simulated.until(lambda: cluster.claim().status.phase == "Failed")

    cluster.play(story)
    assert cluster.given() == [] and len(cluster.templates()) == 1


ARRIVALS = st.lists(
    st.tuples(st.sampled_from(["class-1", "class-2", "plain-1", "plain-2"]), st.integers(0, 30)), max_size=14
)


@given(ARRIVALS)
def test_no_device_is_in_a_lease_and_a_resource_claim_or_given_twice(arrivals: list[tuple[str, int]]) -> None:
    cluster = CarryingCluster(a=4, b=3, reported=2)

    async def story() -> None:
        cluster.add(carried("class-1"), carried("class-2", count=2), claim("plain-1"), claim("plain-2", count=2))
        for number, (uses, _) in enumerate(arrivals):
            cluster.pod(f"p{number}", uses)
        await cluster.pass_time(5)
        for number, (_, end) in enumerate(arrivals):
            if end < 10:
                cluster.simulated.server.delete(resources.PODS, f"p{number}", namespace="default")
                await cluster.pass_time(end / 10)
                cluster.check()
        await cluster.pass_time(40)

    cluster.play(story)
    cluster.check()
    bound = cluster.simulated.bound()
    held = Counter(each for name in cluster.leases() for each in [name.rsplit("-", 1)[0]])
    taken = {node for node, _ in cluster.given()}
    assert taken <= {"a", "b"} and {name.removeprefix("gpu-") for name in held} <= {"reported-0", "reported-1"}
    pods = {pod.metadata.name: (pod.metadata.annotations or {}) for pod in cluster.simulated.list(resources.PODS)}
    of_class = sum(
        int(notes[custom_resources.CLAIM][-1])
        for name, notes in pods.items()
        if name in bound and "class" in notes[custom_resources.CLAIM]
    )
    plain = sum(
        int(notes[custom_resources.CLAIM][-1])
        for name, notes in pods.items()
        if name in bound and "plain" in notes[custom_resources.CLAIM]
    )
    assert (len(cluster.given()), len(cluster.leases())) == (of_class, plain)
