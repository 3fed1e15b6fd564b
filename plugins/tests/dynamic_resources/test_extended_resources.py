"""Extended resources that classes of devices serve: pods without claims get devices, and one claim is made for each."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import Conflict, Unavailable, model, resources
from gangline.simulate import SimulatedClient
from gangline.testing import Cache, FakeHandle, make_node, make_pod
from gangline_plugins.dynamic_resources import DynamicResources
from gangline_plugins.dynamic_resources.extended import ExtendedClaims, requests_of
from gangline_plugins.extended_resources import ExtendedResources

from .claim_cases import DRIVER, PROFILE, Cluster, exactly

NAME = "example.com/device"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
GANG = {"gang.scheduling.koordinator.sh/name": "a", "gang.scheduling.koordinator.sh/min-available": "8"}


def serving(resource: str = NAME, /, **devices: int) -> Cluster:
    """A cluster whose class serves a resource."""
    cluster = Cluster(**devices)
    serve(cluster, resource)
    return cluster


def serve(cluster: Cluster, resource: str) -> None:
    """The class serves this resource from now on."""
    served = cluster.simulated.server.get(resources.DEVICE_CLASSES, "gpu").data
    spec = {**served["spec"], "extendedResourceName": resource}
    cluster.simulated.server.replace(resources.DEVICE_CLASSES, {**served, "spec": spec})


def asking(cluster: Cluster, name: str, count: int = 1, resource: str = NAME, **more: Any) -> None:
    cluster.simulated.create(resources.PODS, make_pod(name, resources={resource: count}, **more))


def status_of(cluster: Cluster, pod: str) -> Any:
    return cluster.simulated.server.get(resources.PODS, pod, namespace="default").data["status"][
        "extendedResourceClaimStatus"
    ]


@pytest.mark.parametrize("resource", [NAME, IMPLICIT])
def test_a_pod_that_requests_what_a_class_serves_gets_devices_and_a_claim_of_its_own(resource: str) -> None:
    cluster = serving(a=1, b=2)

    async def story() -> None:
        asking(cluster, "p", 2, resource)
        await cluster.bound("p")

    cluster.play(story)
    assert cluster.simulated.bound() == {"p": "b"}
    (claim,) = cluster.claims().values()
    metadata = claim.metadata
    assert metadata.name.startswith("p-extended-resources-")
    assert metadata.annotations == {ANNOTATION: "true"}
    assert [(each.kind, each.name, each.controller) for each in metadata.owner_references] == [("Pod", "p", True)]
    (request,) = claim.spec.devices.requests
    assert request.exactly == model.ExactDeviceRequest("gpu", allocation_mode="ExactCount", count=2)
    assert [(each.pool, each.device) for each in claim.status.results] == [("b", "gpu-0"), ("b", "gpu-1")]
    assert [each.name for each in claim.status.reserved_for] == ["p"]
    mapping = {"containerName": "main", "resourceName": resource, "requestName": request.name}
    assert status_of(cluster, "p") == {"resourceClaimName": metadata.name, "requestMappings": [mapping]}


def test_a_resource_that_no_class_serves_stays_one_of_device_plugins() -> None:
    cluster = serving("example.com/other", a=1)

    async def story() -> None:
        asking(cluster, "p")
        await cluster.told("p", f"Insufficient {NAME}")
        asking(cluster, "q", resource="deviceclass.resource.kubernetes.io/unknown")
        await cluster.told("q", "Insufficient")

    cluster.play(story)
    assert not cluster.claims()


def test_a_class_that_begins_to_serve_the_resource_wakes_the_pod() -> None:
    cluster = serving("example.com/other", a=1)

    async def story() -> None:
        asking(cluster, "p")
        await cluster.told("p", f"Insufficient {NAME}")
        serve(cluster, NAME)
        await cluster.bound("p")

    cluster.play(story)
    cluster.check()


def test_a_device_plugin_that_starts_to_advertise_the_resource_wakes_the_pod() -> None:
    cluster = serving()
    cluster.simulated.create(resources.NODES, make_node("a"))

    async def story() -> None:
        asking(cluster, "p")
        await cluster.told("p", "cannot allocate all claims")
        await cluster.settle()
        amounts = {NAME: "1"}
        advertised = {"status": {"allocatable": amounts, "capacity": amounts}}
        cluster.simulated.server.patch(resources.NODES, "a", advertised, subresource="status")
        await cluster.simulated.until(lambda: "p" in cluster.simulated.bound(), seconds=30.0)

    cluster.play(story)
    assert not cluster.claims()


def test_a_class_that_no_longer_serves_the_resource_gives_no_devices_for_it() -> None:
    cluster = serving(a=2)

    async def story() -> None:
        asking(cluster, "p")
        await cluster.bound("p")
        serve(cluster, "example.com/other")
        await cluster.settle()
        asking(cluster, "q")
        await cluster.told("q", f"Insufficient {NAME}")
        cluster.simulated.server.delete(resources.PODS, "p", namespace="default")
        await cluster.simulated.until(lambda: not cluster.claims())

    cluster.play(story)


def test_a_profile_without_the_plugin_leaves_the_resource_to_device_plugins() -> None:
    cluster = serving(a=2)
    disabling = PROFILE.replace("enabled:", "disabled: [{name: DynamicResources}], enabled:")

    async def story() -> None:
        async with cluster.simulated.scheduling(disabling, None, plugins=[DynamicResources]):
            asking(cluster, "p")
            await cluster.told("p", f"Insufficient {NAME}")

    cluster.play(story, schedules=False)
    assert not cluster.claims()


def test_init_containers_that_end_share_devices_with_each_other_and_with_those_that_start_later() -> None:
    def container(name: str, count: int, policy: str | None = None) -> model.Container:
        wanted = model.ResourceRequirements(limits={"cpu": 1, NAME: count})
        return model.Container(name, resources=wanted, restart_policy=policy)

    spec = model.PodSpec(
        init_containers=[container("first", 4), container("sidecar", 2, "Always"), container("last", 3)],
        containers=[container("main", 1)],
    )

    requests, mappings = requests_of(spec, {NAME: "gpu"})

    counts = {each.name: each.exactly.count for each in requests if each.exactly is not None}
    sidecar, main, shared = (f"container-{place}-request-1" for place in (1, 3, 2))
    assert counts == {sidecar: 2, main: 1, shared: 2}
    assert [(each.container_name, each.request_name) for each in mappings] == [
        ("sidecar", sidecar),
        ("main", main),
        ("first", sidecar),
        ("first", main),
        ("first", shared),
        ("last", main),
        ("last", shared),
    ]


def test_where_a_device_plugin_advertises_the_resource_it_wins_and_no_claim_is_made() -> None:
    cluster = serving()
    cluster.simulated.create(resources.NODES, make_node("plugin", resources={NAME: 1}))

    async def story() -> None:
        asking(cluster, "p")
        await cluster.bound("p")
        asking(cluster, "q")
        await cluster.told("q", f"Insufficient {NAME}")

    cluster.play(story)
    assert not cluster.claims()


def test_each_node_serves_what_its_device_plugin_does_not() -> None:
    cluster = serving(a=1)
    cluster.simulated.create(resources.NODES, make_node("b", resources={NAME: 1}))
    cluster.offer("b", model.Device("gpu-0"), model.Device("gpu-1"))

    async def story() -> None:
        asked = {NAME: 1, IMPLICIT: 2}
        cluster.simulated.create(resources.PODS, make_pod("p", resources=asked))
        await cluster.bound("p")

    cluster.play(story)
    assert cluster.simulated.bound() == {"p": "b"}
    (claim,) = cluster.claims().values()
    assert [each.exactly.count for each in claim.spec.devices.requests if each.exactly] == [2]
    assert [each["resourceName"] for each in status_of(cluster, "p")["requestMappings"]] == [IMPLICIT]


def test_pods_that_come_together_get_different_devices_and_the_last_none() -> None:
    cluster = serving(a=4, b=4)

    async def story() -> None:
        for number in range(9):
            asking(cluster, f"p{number}")
        await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == 8)
        await cluster.settle()
        assert len(cluster.given()) == 8
        (left,) = {f"p{number}" for number in range(9)} - cluster.simulated.bound().keys()
        assert "cannot allocate all claims" in cluster.simulated.message(left)
        gone = next(iter(cluster.simulated.bound()))
        cluster.simulated.server.delete(resources.PODS, gone, namespace="default")
        await cluster.bound(left)

    cluster.play(story)
    cluster.check()
    assert len(cluster.claims()) == 8


def test_a_pod_has_claims_of_its_own_beside_its_extended_resources() -> None:
    cluster = serving(a=2, b=3)

    async def story() -> None:
        cluster.template("two", exactly(2))
        entry = model.PodResourceClaim("gpu", None, "two")
        cluster.simulated.create(resources.PODS, make_pod("p", resources={NAME: 1}, resource_claims=[entry]))
        await cluster.bound("p")

    cluster.play(story)
    assert cluster.simulated.bound() == {"p": "b"}
    assert len(cluster.claims()) == 2
    cluster.check()


@pytest.mark.parametrize("devices", [{"a": 8}, {"a": 5, "b": 3}])
@pytest.mark.parametrize("advertised", [0, 1])
def test_a_gang_gets_all_of_its_devices_in_one_decision(devices: dict[str, int], advertised: int) -> None:
    cluster = serving(**devices)
    if advertised:  # then nodes without the resource have a number for it, which is 0
        cluster.simulated.create(resources.NODES, make_node("c", cpu=0, pods=0, resources={NAME: advertised}))

    async def story() -> None:
        for number in range(8):
            asking(cluster, f"g{number}", annotations=GANG)
        await cluster.bound(*(f"g{number}" for number in range(8)))

    cluster.play(story)
    assert len(cluster.given()) == len(cluster.claims()) == 8
    cluster.check()


def test_a_gang_for_which_a_device_is_missing_gets_none() -> None:
    cluster = serving(a=4, b=3)

    async def story() -> None:
        for number in range(8):
            asking(cluster, f"g{number}", annotations=GANG)
        await cluster.simulated.until(lambda: bool(cluster.simulated.message("g0")))
        await cluster.settle()

    cluster.play(story)
    assert not cluster.simulated.bound()
    assert not cluster.claims()


class Fails:
    """Fails calls of a verb on a kind, for a number of times, before they reach the server."""

    def __init__(self, verb: str, kind: resources.Resource[Any], error: Exception, times: int) -> None:
        self.verb, self.kind, self.error, self.left = verb, kind, error, times

    def __call__(self, verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == self.verb and resource.plural == self.kind.plural and self.left:
            self.left -= 1
            return self.error
        return None


@pytest.mark.parametrize(
    ("verb", "kind", "error"),
    [
        ("create", resources.RESOURCE_CLAIMS, Unavailable(0, "", "no answer")),
        ("patch", resources.RESOURCE_CLAIMS, Unavailable(0, "", "no answer")),
        ("patch", resources.PODS, Unavailable(0, "", "no answer")),
        ("bind", resources.PODS, Conflict(409, "Conflict", "changed")),
    ],
)
@pytest.mark.parametrize("size", [1, 8])
def test_what_was_made_for_a_pod_that_is_not_bound_is_deleted(
    verb: str, kind: resources.Resource[Any], error: Exception, size: int
) -> None:
    cluster = serving(a=8)
    faults = Fails(verb, kind, error, 1)

    async def story() -> None:
        for number in range(size):
            asking(cluster, f"g{number}", annotations=GANG if size > 1 else {})
        await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == size, seconds=600.0)

    cluster.play(story, SimulatedClient(cluster.simulated.server, faults=faults))
    assert not faults.left
    assert len(cluster.given()) == len(cluster.claims()) == size
    cluster.check()


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("stage", ["created", "allocated", "told"])
def test_what_a_scheduler_that_was_killed_has_left_behind_is_deleted(size: int, stage: str) -> None:
    cluster = serving(a=8)
    calls: dict[str, tuple[str, resources.Resource[Any]]] = {
        "created": ("patch", resources.RESOURCE_CLAIMS),
        "allocated": ("patch", resources.PODS),
        "told": ("bind", resources.PODS),
    }
    verb, kind = calls[stage]
    is_dead = False

    def stop(called: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        nonlocal is_dead
        is_nomination = called == "patch" and resource is resources.PODS and not cluster.claims()
        is_dead = is_dead or (called == verb and resource.plural == kind.plural and not is_nomination)
        return Unavailable(0, "", "no answer") if is_dead and called not in ("list", "watch") else None

    async def story() -> None:
        async with cluster.scheduling(faults=stop):
            for number in range(size):
                asking(cluster, f"g{number}", annotations=GANG if size > 1 else {})
            await cluster.simulated.until(lambda: is_dead and len(cluster.claims()) > 0)
        before = set(cluster.claims())
        assert before
        assert not cluster.simulated.bound()
        async with cluster.scheduling():
            await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == size, seconds=600.0)
        assert not before & set(cluster.claims())

    cluster.play(story, schedules=False)
    assert len(cluster.given()) == len(cluster.claims()) == size
    cluster.check()


def test_of_several_classes_the_newest_serves_the_resource_and_then_the_alphabetically_first() -> None:
    cluster = Cluster()
    for name, created in (
        ("old", "2026-01-01T00:00:00Z"),
        ("b", "2026-01-02T00:00:00Z"),
        ("a", "2026-01-02T00:00:00Z"),
    ):
        selector = model.DeviceSelector(model.CelDeviceSelector(f'device.driver == "{DRIVER}"'))
        metadata = model.ObjectMeta(name, creation_timestamp=created)
        cluster.simulated.create(
            resources.DEVICE_CLASSES,
            model.DeviceClass(metadata, model.DeviceClassSpec([selector], extended_resource_name=NAME)),
        )
    cluster.simulated.create(resources.NODES, make_node("n"))
    cluster.offer("n", *(model.Device(f"gpu-{number}") for number in range(3)))

    async def story() -> None:
        asking(cluster, "p")
        await cluster.bound("p")

    cluster.play(story)
    (claim,) = cluster.claims().values()
    (request,) = claim.spec.devices.requests
    assert request.exactly is not None
    assert request.exactly.device_class_name == "a"


@pytest.mark.parametrize(("namespace", "counts"), [("default", True), ("elsewhere", False)])
def test_a_claim_of_another_namespace_that_says_it_is_the_pods_does_not_count(namespace: str, counts: bool) -> None:
    cache = Cache()
    state = FakeHandle(cache).state
    store = cache.store(resources.RESOURCE_CLAIMS)
    claims = ExtendedClaims(ExtendedResources(state), cache.nodes.view, store)
    pod = cache.record(make_pod("p"))
    owner = model.OwnerReference("Pod", "p", pod.uid, "v1", controller=True)
    metadata = model.ObjectMeta("c", namespace, annotations={ANNOTATION: "true"}, owner_references=[owner], uid="c")

    store.upsert(model.ResourceClaim(metadata))

    assert [claim.metadata.uid for claim in claims.there(pod)] == ["c"] * counts
    store.remove(namespace, "c")
    assert claims.there(pod) == []
