"""Reads and writes through the client, refused where an API server refuses them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gangline import model
from gangline.errors import ConfigError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from gangline.kube.interface import Client, PatchKind
from gangline.kube.resources import (
    LEASES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Resource,
)
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock

from .stories import in_virtual_time, node, pod


def lease(holder: str, version: str = "") -> model.Lease:
    metadata = model.ObjectMeta(name="leader", namespace="kube-system", resource_version=version)
    return model.Lease(metadata, model.LeaseSpec(holder_identity=holder))


def condition(type_: str, status: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "status": status, **more}


@in_virtual_time
async def test_it_is_a_client(clock: VirtualClock, client: Client) -> None:
    assert (await client.list(PODS)).items == []


@in_virtual_time
async def test_answers_are_fresh_objects(clock: VirtualClock, server: InMemoryServer, client: SimulatedClient) -> None:
    server.apply_manifest(pod("a", nodeSelector={"zone": "x"}))

    first = await client.get(PODS, "a")
    assert first.spec.node_selector is not None
    first.spec.node_selector["zone"] = "changed"

    assert (await client.get(PODS, "a")).spec.node_selector == {"zone": "x"}


@in_virtual_time
async def test_a_created_object_has_identity_and_defaults(clock: VirtualClock, client: SimulatedClient) -> None:
    limits: dict[str, model.Quantity] = {"cpu": 2, "nvidia.com/gpu": 1}
    requests: dict[str, model.Quantity] = {"cpu": 1}
    container = model.Container(name="a", resources=model.ResourceRequirements(requests, limits))
    new = model.Pod(model.ObjectMeta(generate_name="a-"), model.PodSpec(containers=[container]))
    await asyncio.sleep(5)

    made = await client.create(PODS, new, namespace="team")
    other = await client.create(PODS, new, namespace="team")

    assert made.metadata.namespace == "team"
    assert made.metadata.creation_timestamp == "2026-01-01T00:00:05Z"
    assert made.metadata.name.startswith("a-") and len(made.metadata.name) == 7
    assert other.metadata.name != made.metadata.name
    assert other.metadata.uid != made.metadata.uid
    assert int(other.metadata.resource_version) == int(made.metadata.resource_version) + 1
    assert made.spec.containers[0].resources == model.ResourceRequirements({"cpu": 1, "nvidia.com/gpu": 1}, limits)
    assert (made.spec.scheduler_name, made.status.phase, made.spec.priority) == ("default-scheduler", "Pending", 0)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, ("ExactCount", 1)),
        ({"count": 3}, ("ExactCount", 3)),
        ({"allocationMode": "ExactCount"}, ("ExactCount", 1)),
        ({"allocationMode": "All"}, ("All", 0)),
    ],
)
@in_virtual_time
async def test_a_claim_asks_for_one_device_unless_it_says_how_many(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient, given: dict[str, Any], made: tuple[str, int]
) -> None:
    asked = {"deviceClassName": "gpu", **given}
    alternatives = {"name": "any", "firstAvailable": [{"name": "first", **asked}]}
    spec = {"devices": {"requests": [{"name": "one", "exactly": asked}, alternatives]}}
    dra = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "a", "namespace": "team"}}
    for _ in range(2):  # the second time the claim is there, and its spec may not change
        server.apply_manifest({**dra, "kind": "ResourceClaim", "spec": spec})
    server.apply_manifest({**dra, "kind": "ResourceClaimTemplate", "spec": {"spec": spec}})

    claim = await client.get(RESOURCE_CLAIMS, "a", namespace="team")
    template = await client.get(RESOURCE_CLAIM_TEMPLATES, "a", namespace="team")

    for found in (claim.spec, template.spec.spec):
        one, other = found.devices.requests
        assert one.exactly is not None
        assert (one.exactly.allocation_mode, one.exactly.count) == made
        assert [(each.allocation_mode, each.count) for each in other.first_available] == [made]


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        (
            {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}},
            'spec.containers[0].resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
        ),
        (
            {"limits": {"nvidia.com/gpu": "500m"}},
            '[spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer, '
            'spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value: "500m": must be an integer]',
        ),
        (
            {"requests": {"cpu": 1.5}, "limits": {"cpu": "1"}},
            'spec.containers[0].resources.requests: Invalid value: "1500m": must be less than or equal to '
            "cpu limit of 1",
        ),
    ],
)
def test_requests_that_no_api_server_takes_are_refused(
    server: InMemoryServer, resources: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        server.apply_manifest(pod("a", containers=[{"name": "main", "resources": resources}]))

    assert f'Pod "a" is invalid: {why}' in str(caught.value)


@pytest.mark.parametrize(
    "resources",
    [
        {"requests": {"cpu": "500m"}, "limits": {"cpu": 1, "nvidia.com/gpu": "2"}},
        {"requests": {"nvidia.com/gpu": "1e0"}, "limits": {"nvidia.com/gpu": 1}},
        {"requests": {"example.kubernetes.io/gpu": "500m"}},
    ],
)
def test_requests_that_an_api_server_takes_are_taken(server: InMemoryServer, resources: dict[str, Any]) -> None:
    server.apply_manifest(pod("a", containers=[{"name": "main", "resources": resources}]))


@in_virtual_time
async def test_creating_what_exists_is_a_conflict(clock: VirtualClock, client: SimulatedClient) -> None:
    await client.create(LEASES, lease("a"))

    with pytest.raises(Conflict) as caught:
        await client.create(LEASES, lease("b"))

    assert str(caught.value) == '409 AlreadyExists: leases.coordination.k8s.io "leader" already exists'


@in_virtual_time
async def test_of_two_clients_that_race_for_a_lease_exactly_one_gets_it(
    clock: VirtualClock, server: InMemoryServer
) -> None:
    clients = [SimulatedClient(server, latency={"replace": 0.01}) for _ in range(2)]
    made = await clients[0].create(LEASES, lease(""))

    async def take(client: SimulatedClient, holder: str) -> model.Lease:
        return await client.replace(LEASES, lease(holder, made.metadata.resource_version))

    outcomes = await asyncio.gather(
        *(take(client, name) for client, name in zip(clients, "ab", strict=True)), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [model.Lease, Conflict]
    assert (await clients[1].get(LEASES, "leader", namespace="kube-system")).spec.holder_identity == "a"


@in_virtual_time
async def test_a_lease_is_not_replaced_without_a_resource_version(clock: VirtualClock, client: SimulatedClient) -> None:
    await client.create(LEASES, lease("a"))

    with pytest.raises(Invalid, match="must be specified for an update"):
        await client.replace(LEASES, lease("b"))


@in_virtual_time
async def test_a_write_that_changes_nothing_keeps_the_resource_version(
    clock: VirtualClock, client: SimulatedClient
) -> None:
    made = await client.create(LEASES, lease("a"))

    assert await client.replace(LEASES, made) == made


@in_virtual_time
async def test_status_and_object_are_written_apart(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a"))

    both = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    whole = await client.patch(PODS, "a", both)
    assert (whole.metadata.labels, whole.status.phase) == ({"a": "b"}, "Pending")

    other = {"metadata": {"labels": {"c": "d"}}, "status": {"nominatedNodeName": "n"}}
    status = await client.patch(PODS, "a", other, subresource="status")
    assert (status.metadata.labels, status.status.nominated_node_name) == ({"a": "b"}, "n")


@in_virtual_time
async def test_a_strategic_patch_merges_conditions_by_type(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a"))
    for status in (
        {"conditions": [condition("A", "True"), condition("B", "True", reason="Old")]},
        {"phase": "Running"},
    ):
        await client.patch(PODS, "a", {"status": status}, subresource="status")

    patch = {"status": {"conditions": [condition("B", "False"), condition("C", "True")], "phase": None}}
    after = await client.patch(PODS, "a", patch, subresource="status", kind=PatchKind.STRATEGIC)

    assert [(each.type, each.status, each.reason) for each in after.status.conditions] == [
        ("A", "True", ""),
        ("B", "False", "Old"),
        ("C", "True", ""),
    ]
    assert after.status.phase == ""


@in_virtual_time
async def test_a_merge_patch_replaces_lists_and_removes_nulls(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest({**pod("a"), "metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}})

    after = await client.patch(
        PODS, "a", {"metadata": {"labels": {"x": None}}, "spec": {"tolerations": [{"key": "k", "value": None}]}}
    )

    assert after.metadata.labels == {"y": "2"}
    assert after.spec.tolerations == [model.Toleration(key="k")]


@in_virtual_time
async def test_a_patch_with_a_stale_resource_version_is_a_conflict(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a"))
    version = (await client.get(PODS, "a")).metadata.resource_version
    await client.patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}})

    with pytest.raises(Conflict, match="the object has been modified"):
        await client.patch(PODS, "a", {"metadata": {"resourceVersion": version, "labels": {"x": "2"}}})


@in_virtual_time
async def test_apply_owns_fields_and_takes_them_away_again(clock: VirtualClock, client: SimulatedClient) -> None:
    def labels(**labels: str) -> dict[str, Any]:
        return {"metadata": {"labels": labels}}

    await client.apply(NODES, "n", labels(a="1", b="1"), field_manager="agent")
    await client.apply(NODES, "n", labels(b="1", c="1"), field_manager="other")
    after = await client.apply(NODES, "n", labels(d="1"), field_manager="agent")
    assert after.metadata.labels == {"kubernetes.io/hostname": "n", "b": "1", "c": "1", "d": "1"}

    with pytest.raises(Conflict, match=r"1 conflict\(s\): .metadata.labels.c \(owned by other\)"):
        await client.apply(NODES, "n", labels(c="2"), field_manager="agent", force=False)
    forced = await client.apply(NODES, "n", labels(c="2"), field_manager="agent")
    assert forced.metadata.labels == {"kubernetes.io/hostname": "n", "b": "1", "c": "2"}


@in_virtual_time
async def test_apply_gives_up_an_item_of_a_list(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(node("n"))
    taint = {"key": "broken", "effect": "NoSchedule"}
    await client.apply(NODES, "n", {"spec": {"taints": [taint]}}, field_manager="agent")
    await client.apply(NODES, "n", {"spec": {"taints": [{**taint, "key": "mine"}]}}, field_manager="other")

    after = await client.apply(NODES, "n", {"spec": {}}, field_manager="agent")

    assert after.spec.taints == [model.Taint(key="mine", effect="NoSchedule")]


@in_virtual_time
async def test_a_delete_is_only_of_the_object_that_is_meant(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a"))
    made = await client.get(PODS, "a")

    with pytest.raises(Conflict, match="UID in precondition: other, UID in object meta: "):
        await client.delete(PODS, "a", uid="other")
    with pytest.raises(Conflict):
        await client.delete(PODS, "a", resource_version="1")
    await client.delete(PODS, "a", uid=made.metadata.uid, resource_version=made.metadata.resource_version)

    with pytest.raises(NotFound, match='404 NotFound: pods "a" not found'):
        await client.get(PODS, "a")


@in_virtual_time
async def test_a_bound_pod_is_only_marked_until_its_grace_is_over(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a", nodeName="n"))

    await client.delete(PODS, "a", grace_period_seconds=20)
    assert (await client.get(PODS, "a")).metadata.deletion_timestamp == "2026-01-01T00:00:20Z"
    await client.delete(PODS, "a", grace_period_seconds=60)
    assert (await client.get(PODS, "a")).metadata.deletion_timestamp == "2026-01-01T00:00:20Z"
    await client.delete(PODS, "a", grace_period_seconds=0)

    with pytest.raises(NotFound):
        await client.get(PODS, "a")


@in_virtual_time
async def test_an_object_stays_until_its_last_finalizer_is_gone(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest({**pod("a"), "metadata": {"name": "a", "finalizers": ["example.com/x"]}})

    await client.delete(PODS, "a")
    assert (await client.get(PODS, "a")).metadata.deletion_timestamp is not None
    await client.patch(PODS, "a", {"metadata": {"finalizers": None}})

    with pytest.raises(NotFound):
        await client.get(PODS, "a")


@in_virtual_time
async def test_a_bind_sets_node_annotations_and_condition_in_one_write(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a"))
    await client.patch(PODS, "a", {"status": {"nominatedNodeName": "m"}}, subresource="status")
    before = await client.get(PODS, "a")

    await client.bind("default", "a", before.metadata.uid, "n", {"gangline.dev/devices": "0,1"})

    after = await client.get(PODS, "a")
    assert int(after.metadata.resource_version) == int(before.metadata.resource_version) + 1
    assert after.spec.node_name == "n"
    assert after.metadata.annotations == {"gangline.dev/devices": "0,1"}
    assert [(each.type, each.status) for each in after.status.conditions] == [("PodScheduled", "True")]
    assert after.status.nominated_node_name == ""


@pytest.mark.parametrize(
    ("change", "uid", "why"),
    [
        ({}, "other", "Precondition failed: UID in precondition: other"),
        ({"nodeName": "m"}, "", 'pod a is already assigned to node "m"'),
        ({"nodeName": "n"}, "", 'pod a is already assigned to node "n"'),
        ({"schedulingGates": [{"name": "g"}]}, "", "pod a has non-empty .spec.schedulingGates"),
    ],
    ids=["another pod", "another node", "the same node", "gated"],
)
def test_a_bind_is_refused(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient, change: dict[str, Any], uid: str, why: str
) -> None:
    server.apply_manifest(pod("a", **change))

    @in_virtual_time
    async def bind(clock: VirtualClock) -> None:
        await client.bind("default", "a", uid, "n", {})

    with pytest.raises(Conflict) as caught:
        bind(clock=clock)
    assert str(caught.value).startswith(f'409 Conflict: Operation cannot be fulfilled on pods/binding "a": {why}')


@in_virtual_time
async def test_neither_a_missing_nor_a_terminating_pod_is_bound(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    with pytest.raises(NotFound):
        await client.bind("default", "a", "", "n", {})

    server.apply_manifest({**pod("a"), "metadata": {"name": "a", "finalizers": ["example.com/x"]}})
    await client.delete(PODS, "a")
    with pytest.raises(Conflict, match="pod a is being deleted, cannot be assigned to a host"):
        await client.bind("default", "a", "", "n", {})


@pytest.mark.parametrize(
    ("selectors", "names"),
    [
        ({"field_selector": "spec.nodeName="}, ["b", "c"]),
        ({"field_selector": "spec.nodeName=n,spec.schedulerName!=other"}, ["a"]),
        ({"field_selector": "status.phase!=Running"}, ["b", "c"]),
        ({"field_selector": "metadata.name=c"}, ["c"]),
        ({"field_selector": "spec.hostNetwork=true"}, ["c"]),
        ({"namespace": "team"}, ["c"]),
        ({"label_selector": "app=x"}, ["a"]),
        ({"label_selector": "app!=x"}, ["b", "c"]),
        ({"label_selector": "app in (x, y),!batch"}, ["a"]),
        ({"label_selector": "app notin (x)"}, ["b", "c"]),
        ({"label_selector": "batch"}, ["b"]),
    ],
    ids=lambda value: str(value),
)
def test_a_list_holds_what_the_selectors_choose(
    server: InMemoryServer, selectors: dict[str, str], names: list[str]
) -> None:
    first, second = pod("a", nodeName="n"), pod("b", schedulerName="other")
    server.apply_manifest({**first, "metadata": {"name": "a", "labels": {"app": "x"}}, "status": {"phase": "Running"}})
    server.apply_manifest({**second, "metadata": {"name": "b", "labels": {"app": "y", "batch": ""}}})
    server.apply_manifest(pod("c", namespace="team", hostNetwork=True))

    assert [each.data["metadata"]["name"] for each in server.list(PODS, **selectors)] == names


@pytest.mark.parametrize("selectors", [{"label_selector": "a=(b)"}, {"field_selector": "spec"}], ids=str)
def test_a_selector_that_does_not_parse_is_refused(server: InMemoryServer, selectors: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"400 BadRequest: unable to parse (label|field) selector"):
        server.list(PODS, **selectors)


@in_virtual_time
async def test_a_list_from_the_future_is_refused(clock: VirtualClock, client: SimulatedClient) -> None:
    with pytest.raises(Unavailable, match="Too large resource version"):
        await client.list(PODS, resource_version="999")


@in_virtual_time
async def test_priority_comes_from_the_class(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    urgent = model.PriorityClass(model.ObjectMeta(name="urgent"), value=7, preemption_policy="Never")
    await client.create(PRIORITY_CLASSES, urgent)
    server.apply_manifest(pod("a", priorityClassName="urgent"))
    server.apply_manifest(pod("b", priorityClassName="system-node-critical"))

    spec = (await client.get(PODS, "a")).spec
    assert (spec.priority, spec.preemption_policy) == (7, "Never")
    assert (await client.get(PODS, "b")).spec.priority == 2_000_001_000
    missing = model.Pod(model.ObjectMeta(name="c"), model.PodSpec(priority_class_name="none"))
    with pytest.raises(Forbidden, match="no PriorityClass with name none was found"):
        await client.create(PODS, missing)


@in_virtual_time
async def test_what_is_served_is_what_is_known_and_what_is_given(clock: VirtualClock) -> None:
    class Thing(msgspec.Struct):
        metadata: model.ObjectMeta

    things = Resource("example.com", "v1", "things", "Thing", Thing)
    client = SimulatedClient(InMemoryServer(clock, serves=[things]))

    assert await client.served("example.com", "v1") == {"things"}
    assert await client.served("coordination.k8s.io", "v1") == {"leases"}
    assert await client.served("example.com", "v2") == set()


@in_virtual_time
async def test_latency_passes_half_before_the_write_and_half_after(clock: VirtualClock, server: InMemoryServer) -> None:
    server.apply_manifest(pod("a"))
    client = SimulatedClient(server, latency={"bind": 0.002})
    task = asyncio.create_task(client.bind("default", "a", "", "n", {}))

    await asyncio.sleep(0.0009)
    assert "nodeName" not in server.get(PODS, "a").data["spec"]
    await asyncio.sleep(0.0002)
    assert server.get(PODS, "a").data["spec"]["nodeName"] == "n"
    assert not task.done()
    await task
    assert clock.monotonic() == pytest.approx(0.002)


@in_virtual_time
async def test_a_fault_is_raised_instead_of_the_call(clock: VirtualClock, server: InMemoryServer) -> None:
    asked: list[tuple[str, str, str]] = []

    def faults(verb: str, resource: Resource[Any], name: str) -> Exception | None:
        asked.append((verb, resource.plural, name))
        return Unavailable(503, "ServiceUnavailable", "try later") if verb == "bind" else None

    server.apply_manifest(pod("a"))
    client = SimulatedClient(server, faults=faults)

    with pytest.raises(Unavailable, match="try later"):
        await client.bind("default", "a", "", "n", {})
    assert (await client.get(PODS, "a")).spec.node_name == ""
    assert asked == [("bind", "pods", "a"), ("get", "pods", "a")]


@in_virtual_time
async def test_an_object_that_does_not_fit_is_reported_and_does_not_hide_others(
    clock: VirtualClock, server: InMemoryServer
) -> None:
    reported: list[str] = []
    client = SimulatedClient(server, on_invalid=lambda resource, namespace, name, error: reported.append(str(error)))
    server.create(PODS, pod("bad", priority="high"))
    server.create(PODS, pod("good"))

    listing = await client.list(PODS)

    assert [each.metadata.name for each in listing.items] == ["good"]
    assert [each.metadata.name for each in listing.invalid] == ["bad"]
    assert reported == ["Pod default/bad: spec.priority: 'high': Expected `int | null`, got `str`"]
