"""Claims of PodGroups (DRAWorkloadResourceClaims): reserved for the group, and given back when no member needs them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline import Changes, Conflict, model, resources
from gangline.simulate import InMemoryServer, SimulatedClient, simulate
from gangline.testing import Cache, make_node, make_pod
from gangline.testing.configured import configuration
from gangline_plugins.dynamic_resources.claims import ClaimProblem, check
from gangline_plugins.dynamic_resources.referring import References

from .claim_cases import FINALIZER, Cluster, spec

GATE: Mapping[str, bool] = {"DRAWorkloadResourceClaims": True}
GROUP_REFERENCE = ("scheduling.k8s.io", "podgroups", "train")


def profile(gates: Mapping[str, bool] = GATE, gangs: bool = True) -> str:
    enabled = [{"name": "GangPermit"}] if gangs else []
    made = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": enabled}},
        "pluginConfig": [{"name": "DynamicResources", "args": {"featureGates": gates}}],
    }
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return json.dumps({**kind, "profiles": [made]})


def entry(name: str, claim: str = "shared") -> model.PodResourceClaim:
    return model.PodResourceClaim(name, claim)


class GroupCluster(Cluster):
    """A cluster with a PodGroup that has a claim, and pods that use the claim."""

    def __init__(self, gates: Mapping[str, bool] = GATE, gangs: bool = True, **devices: int) -> None:
        super().__init__(**devices)
        self.profile = profile(gates, gangs)

    def group(self, least: int = 3, entries: Sequence[model.PodResourceClaim] = (entry("gpu"),)) -> None:
        policy = model.PodGroupPolicy(gang=model.PodGroupGang(least))
        made = model.PodGroupSpec(scheduling_policy=policy, resource_claims=list(entries))
        self.simulated.create(resources.POD_GROUPS_V1ALPHA2, model.PodGroup(model.ObjectMeta("train", "default"), made))

    def member(self, name: str, claim: str = "shared", **more: Any) -> None:
        group = model.SchedulingGroup("train")
        pod = make_pod(name, resource_claims=[entry("gpu", claim)], **more)
        pod.spec.scheduling_group = group
        self.simulated.create(resources.PODS, pod)

    def members(self, count: int = 3, **more: Any) -> None:
        for number in range(count):
            self.member(f"m{number}", **more)

    def reserved(self, claim: str = "shared") -> list[tuple[str, str, str]]:
        """API group, resource and name of each consumer of a claim."""
        found = self.claims()[claim].status.reserved_for
        return sorted((each.api_group, each.resource, each.name) for each in found)


@pytest.mark.parametrize("gangs", [True, False])
def test_a_claim_of_a_group_is_reserved_once_for_all_members(gangs: bool) -> None:
    cluster = GroupCluster(gangs=gangs, a=1, b=1)
    cluster.group()
    cluster.claim("shared")
    cluster.members()

    cluster.play(lambda: cluster.bound("m0", "m1", "m2"))

    assert len(set(cluster.simulated.bound().values())) == 1
    assert len(cluster.given()) == 1
    assert cluster.reserved() == [GROUP_REFERENCE]


@pytest.mark.parametrize(
    ("gates", "entries"),
    [({}, [entry("gpu")]), (GATE, []), (GATE, [entry("other")]), (GATE, [entry("gpu", "another")])],
    ids=["gate off", "no claims", "another name", "another claim"],
)
def test_other_claims_are_reserved_for_each_pod(
    gates: Mapping[str, bool], entries: Sequence[model.PodResourceClaim]
) -> None:
    cluster = GroupCluster(gates, a=1)
    cluster.group(entries=entries)
    cluster.claim("shared")
    cluster.members()

    cluster.play(lambda: cluster.bound("m0", "m1", "m2"))

    assert cluster.reserved() == [("", "pods", name) for name in ("m0", "m1", "m2")]


def test_more_pods_than_consumers_may_share_a_claim_of_their_group() -> None:
    cluster = GroupCluster(gangs=False, a=1)
    cluster.simulated.create(resources.NODES, make_node("b"))
    cluster.group()
    cluster.claim("shared", allocated_on="a")
    group = cluster.simulated.list(resources.POD_GROUPS_V1ALPHA2)[0].metadata
    others = [
        {"apiGroup": "example.com", "resource": "things", "name": f"t{number}", "uid": f"t{number}"}
        for number in range(255)
    ]
    mine = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": group.uid}
    claim = cluster.simulated.server.get(resources.RESOURCE_CLAIMS, "shared", namespace="default").data
    status = {**claim["status"], "reservedFor": [*others, mine]}
    cluster.simulated.server.replace(resources.RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status")
    cluster.members(2)

    cluster.play(lambda: cluster.bound("m0", "m1"))

    assert set(cluster.simulated.bound().values()) == {"a"}


@pytest.mark.parametrize(
    ("consumer", "expected"), [("group", True), ("pod", True), ("earlier group", False), ("nobody", False)]
)
def test_a_claim_is_reserved_for_the_present_group_of_the_name(consumer: str, expected: bool) -> None:
    cache = Cache()
    references = References(cache, Changes())
    references.set_groups(True)
    group = model.PodGroupSpec(resource_claims=[entry("gpu")])
    meta = model.ObjectMeta("train", "default", uid="now")
    cache.store(resources.POD_GROUPS_V1ALPHA2).upsert(model.PodGroup(meta, group))
    made = make_pod("m0", resource_claims=[entry("gpu")])
    made.spec.scheduling_group = model.SchedulingGroup("train")
    pod = cache.record(made)
    uid = {"group": "now", "pod": pod.uid, "earlier group": "before"}.get(consumer)
    kind = ("", "pods", "m0") if consumer == "pod" else GROUP_REFERENCE
    reserved = [model.ResourceClaimConsumerReference(*kind, uid)] if uid else []
    status = model.ResourceClaimStatus(reserved_for=reserved)
    claim = model.ResourceClaim(model.ObjectMeta("shared", "default", uid="c"), spec(), status)

    assert references.is_reserved(pod, claim) is expected


def made_for_group(cluster: GroupCluster, **owner: Any) -> None:
    """A claim that kube-controller-manager has made from a template for the PodGroup, or for somebody else."""
    given = {"kind": "PodGroup", "name": "train", "uid": "u", "apiVersion": "scheduling.k8s.io/v1alpha2"} | owner
    reference = msgspec.convert({**given, "controller": True}, model.OwnerReference)
    metadata = model.ObjectMeta("train-gpu-x", "default", owner_references=[reference])
    cluster.simulated.create(resources.RESOURCE_CLAIMS, model.ResourceClaim(metadata, spec()))
    for number in range(2):
        made = make_pod(f"m{number}", resource_claims=[model.PodResourceClaim("gpu", None, "one")])
        made.spec.scheduling_group = model.SchedulingGroup("train")
        made.status.resource_claim_statuses = [model.PodResourceClaimStatus("gpu", "train-gpu-x")]
        cluster.simulated.create(resources.PODS, made)


def test_members_share_the_claim_that_was_made_for_their_group() -> None:
    cluster = GroupCluster(a=1, b=1)
    cluster.group(2, [model.PodResourceClaim("gpu", None, "one")])
    made_for_group(cluster)

    cluster.play(lambda: cluster.bound("m0", "m1"))

    assert cluster.reserved("train-gpu-x") == [GROUP_REFERENCE]
    assert len(cluster.given()) == 1


@pytest.mark.parametrize(
    ("gates", "owner", "why"),
    [
        (GATE, {"name": "other"}, "neither Pod nor PodGroup train is the owner"),
        (GATE, {"kind": "Job"}, "neither Pod nor PodGroup train is the owner"),
        (GATE, {"apiVersion": "scheduling.example.com/v1"}, "neither Pod nor PodGroup train is the owner"),
        ({}, {}, "Pod is not owner"),
    ],
)
def test_a_claim_that_was_made_for_somebody_else_holds_the_pods(
    gates: Mapping[str, bool], owner: Mapping[str, str], why: str
) -> None:
    cluster = GroupCluster(gates, gangs=False, a=1)
    cluster.group(1, [model.PodResourceClaim("gpu", None, "one")])
    made_for_group(cluster, **owner)

    cluster.play(cluster.settle)

    assert not cluster.simulated.bound() and not cluster.given()
    pod = Cache().record(cluster.simulated.list(resources.PODS)[0])
    with pytest.raises(ClaimProblem, match=why):
        check(pod, cluster.claims()["train-gpu-x"], "train" if gates else "")


@pytest.mark.parametrize(("entries", "evicted"), [([entry("gpu")], False), ([], True)], ids=["group", "pod"])
def test_no_member_is_evicted_for_devices_that_its_group_keeps(
    entries: Sequence[model.PodResourceClaim], evicted: bool
) -> None:
    cluster = GroupCluster(gangs=False, a=1)
    cluster.group(1, entries)
    cluster.claim("shared")
    cluster.member("low")
    cluster.template("one")

    async def story() -> None:
        await cluster.bound("low")
        cluster.pod("high", "one", priority=1000)
        await cluster.settle()
        await cluster.settle()

    cluster.play(story)

    assert ("low" not in {each.metadata.name for each in cluster.simulated.list(resources.PODS)}) == evicted
    assert ("high" in cluster.simulated.bound()) == evicted


def test_a_group_that_goes_while_its_pod_is_bound_fails_the_binding_alone() -> None:
    cluster = GroupCluster(gangs=False, a=1)
    cluster.group(1)
    cluster.claim("shared")
    gone: list[bool] = []

    def fault(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "patch" and resource.plural == resources.RESOURCE_CLAIMS.plural and not gone:
            gone.append(True)
            cluster.simulated.server.delete(resources.POD_GROUPS_V1ALPHA2, "train", namespace="default")
            return Conflict(409, "Conflict", "changed")
        return None

    async def story() -> None:
        cluster.member("m0")
        await cluster.told("m0", "podgroup")
        cluster.group(1)
        await cluster.bound("m0")

    cluster.play(story, SimulatedClient(cluster.simulated.server, faults=fault))

    assert gone and cluster.reserved() == [GROUP_REFERENCE]


class Refuses:
    """Refuses the binding of one pod for a number of times."""

    def __init__(self, name: str, times: int) -> None:
        self.name = name
        self.left = times

    def __call__(self, verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "bind" and name == self.name and self.left:
            self.left -= 1
            return Conflict(409, "Conflict", "not now")
        return None


def test_a_member_that_is_not_bound_leaves_the_claim_to_the_others() -> None:
    cluster = GroupCluster(gangs=False, a=1)
    cluster.group(1)
    cluster.claim("shared")
    cluster.members()
    found = []

    async def story() -> None:
        await cluster.bound("m1", "m2")
        found.append(cluster.reserved())
        await cluster.bound("m0")

    cluster.play(story, SimulatedClient(cluster.simulated.server, faults=Refuses("m0", 3)))

    assert found == [[GROUP_REFERENCE]]
    assert cluster.reserved() == [GROUP_REFERENCE]


def test_a_gang_that_finds_no_room_beside_its_devices_gets_others() -> None:
    cluster = GroupCluster(a=1)
    for name in ("full", "room"):
        cluster.simulated.create(resources.NODES, make_node(name, cpu="1" if name == "full" else "8"))
    for name in ("full", "room"):
        cluster.offer(name, model.Device("gpu-0"))
    cluster.group(2)
    cluster.claim("shared", allocated_on="full")
    group = cluster.simulated.list(resources.POD_GROUPS_V1ALPHA2)[0].metadata
    claim = cluster.simulated.server.get(resources.RESOURCE_CLAIMS, "shared", namespace="default").data
    mine = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": group.uid}
    cluster.simulated.server.replace(
        resources.RESOURCE_CLAIMS, {**claim, "status": {**claim["status"], "reservedFor": [mine]}}, subresource="status"
    )
    cluster.members(2, cpu="1")

    cluster.play(lambda: cluster.bound("m0", "m1"))

    assert set(cluster.simulated.bound().values()) <= {"a", "room"}
    assert cluster.reserved() == [GROUP_REFERENCE]
    assert FINALIZER in cluster.claims()["shared"].metadata.finalizers


def test_pods_get_the_claim_of_a_template_with_their_group_and_lose_it_with_the_group() -> None:
    cluster = GroupCluster(a=1, b=1)
    cluster.template("one")
    cluster.group(2, [model.PodResourceClaim("gpu", None, "one")])
    for number in range(2):
        made = make_pod(f"m{number}", resource_claims=[model.PodResourceClaim("gpu", None, "one")])
        made.spec.scheduling_group = model.SchedulingGroup("train")
        cluster.simulated.create(resources.PODS, made)
    reserved = []

    async def story() -> None:
        await cluster.bound("m0", "m1")
        (claim,) = cluster.claims()
        reserved.append(cluster.reserved(claim))
        for name in ("m0", "m1"):
            cluster.simulated.server.delete(resources.PODS, name, namespace="default")
        await cluster.settle()
        reserved.append(cluster.reserved(claim))
        cluster.simulated.server.delete(resources.POD_GROUPS_V1ALPHA2, "train", namespace="default")
        await cluster.settle()

    cluster.play(story)

    assert reserved == [[GROUP_REFERENCE], [GROUP_REFERENCE]]
    assert not cluster.given()


def test_a_pod_waits_for_its_group() -> None:
    cluster = GroupCluster(gangs=False, a=1)
    cluster.claim("shared")
    cluster.member("m0")

    async def story() -> None:
        await cluster.told("m0", 'podgroup "train" not found')
        cluster.group(1)
        await cluster.bound("m0")

    cluster.play(story)

    assert cluster.reserved() == [GROUP_REFERENCE]


class Older(SimulatedClient):
    """A client of an API server without PodGroups."""

    def __init__(self, server: InMemoryServer) -> None:
        super().__init__(server)

    async def served(self, group: str, version: str) -> set[str]:
        """See the interface."""
        return set() if group == "scheduling.k8s.io" and version != "v1" else await super().served(group, version)


def test_where_groups_are_not_served_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = GroupCluster(a=1)
    cluster.template("one")
    cluster.pod("p", "one")

    with caplog.at_level(logging.INFO):
        cluster.play(lambda: cluster.bound("p"), Older(cluster.simulated.server))

    said = [each.getMessage() for each in caplog.records if "PodGroups" in each.getMessage()]
    assert said == ["the API server does not serve PodGroups (feature gate DRAWorkloadResourceClaims); none are read"]


MANIFESTS = """\
{apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: 8, pods: 10}}}
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec:
  driver: gpu.example.com
  nodeName: a
  pool: {name: a, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 1}}]}}}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: train}
spec: {schedulingPolicy: {gang: {minCount: 2}}, resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]}
"""
MEMBER = """\
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  schedulingGroup: {podGroupName: train}
  containers: [{name: main, image: main}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
"""


def test_a_simulation_shows_the_devices_of_a_group_at_each_member(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(MANIFESTS + "".join(MEMBER.replace("NAME", name) for name in ("m0", "m1")))

    outcome = simulate([file], configuration(profile()), 30.0)

    assert outcome.warnings == []
    assert outcome.nodes[0].claimed == {key: ["gpu-0"] for key in outcome.nodes[0].pods}
    assert len(outcome.nodes[0].pods) == 2


class Flaky:
    """Refuses some writes, and some bindings, at random."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def __call__(self, verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        is_write = verb == "bind" or (verb == "patch" and resource.plural == resources.RESOURCE_CLAIMS.plural)
        return Conflict(409, "Conflict", "not now") if is_write and self.random.random() < 0.2 else None


@settings(max_examples=settings().max_examples // 2)
@given(st.integers(min_value=0, max_value=2**32))
def test_whatever_fails_a_claim_of_a_group_ends_with_the_group_alone(seed: int) -> None:
    random = Random(seed)
    gangs = random.random() < 0.5
    cluster = GroupCluster(gangs=gangs, a=random.randint(1, 2), b=random.randint(1, 2))
    cluster.template("one")
    cluster.claim("shared")
    least = random.randint(1, 3)
    cluster.group(least)
    members = [f"m{number}" for number in range(random.randint(least, 4))]

    async def story() -> None:
        cluster.pod("alone", "one")
        for name in members:
            cluster.member(name)
            cluster.member(f"short-{name}")
            await asyncio.sleep(random.choice((0.0, 0.1, 3.0)))
            cluster.simulated.server.delete(resources.PODS, f"short-{name}", namespace="default")
        await cluster.simulated.until(lambda: cluster.simulated.bound().keys() == {"alone", *members}, 1200)
        await cluster.settle()

    cluster.play(story, SimulatedClient(cluster.simulated.server, faults=Flaky(random)))

    assert cluster.reserved() == [GROUP_REFERENCE]
    assert len(set(cluster.given())) == len(cluster.given()) == 2
    assert {cluster.simulated.bound()[name] for name in members} == {
        each.pool for each in cluster.claims()["shared"].status.results
    }


@pytest.mark.parametrize(("gates", "is_listed"), [(GATE, True), ({}, False)])
def test_groups_are_read_behind_the_gate_alone(gates: Mapping[str, bool], is_listed: bool) -> None:
    cluster = GroupCluster(gates, gangs=False, a=1)
    cluster.template("one")
    cluster.pod("p", "one")
    listed: set[str] = set()

    def note(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if verb == "list":
            listed.add(resource.plural)

    cluster.play(lambda: cluster.bound("p"), SimulatedClient(cluster.simulated.server, faults=note))

    assert "resourceclaims" in listed
    assert ("podgroups" in listed) == is_listed


def test_groups_count_as_long_as_the_configuration_in_use_turns_the_gate_on() -> None:
    cluster = GroupCluster(a=3)
    gates: Sequence[Mapping[str, bool]] = (GATE, {}, GATE)
    cluster.group(1, [entry("gpu", f"c{number}") for number in range(3)])
    for number in range(3):
        cluster.claim(f"c{number}")

    async def story() -> None:
        async with cluster.simulated.scheduling(profile(gangs=False)) as scheduler:
            for number, each in enumerate(gates):
                scheduler.use(configuration(profile(each, gangs=False)))
                await cluster.settle()
                cluster.member(f"m{number}", f"c{number}")
                await cluster.bound(f"m{number}")

    cluster.play(story, schedules=False)

    assert [cluster.reserved(f"c{number}") for number in range(3)] == [
        [GROUP_REFERENCE],
        [("", "pods", "m1")],
        [GROUP_REFERENCE],
    ]
