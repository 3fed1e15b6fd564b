"""What groups are read from, on a real API server: metadata alone, the PodGroup of the chart, and the upstream one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gangline import model
from gangline.api.pod_group import Membership, Problem
from gangline.groups import Groups
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.kube.interface import EventType
from gangline.kube.optional import OptionalInformer
from gangline.kube.resources import DEPLOYMENTS, POD_GROUPS_V1ALPHA2, POD_GROUPS_V1BETA1, Resource
from gangline.loop.watching import Cluster, StoreHandler
from gangline.profile.recording import EventRecorder
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.waiting import WaitingPods
from gangline.state.cache import Cache
from gangline.testing import FakeClock, make_pod
from gangline_e2e.api import Api, connect
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.sources import Cluster as Source
from gangline_e2e.workloads import Manifest

StartControlPlane = Callable[[Options], ControlPlane]
WHOLE = Resource("apps", "v1", "deployments", "Deployment", model.ReplicaSet)
"""Deployments as they are asked for when all of an object counts."""
GATES = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption")
WITH_POD_GROUPS = (
    f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)

pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def gangline_client(kubeconfig: Path) -> AsyncIterator[HttpClient]:
    async with HttpClient(auth.load(str(kubeconfig)), connections=8) as client:
        yield client


def deployment(name: str, annotations: dict[str, str]) -> Manifest:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }


def pod_group(name: str, **spec: Any) -> Manifest:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
    return {**group, "spec": spec}


# Metadata alone


async def test_of_a_deployment_the_api_server_sends_its_metadata_alone(cluster: Api, control_plane: Source) -> None:
    await cluster.create(deployment("serve", {"topology.scheduler/gpu-count": "8"}))
    bare = Resource("apps", "v1", "deployments", "Deployment", model.ReplicaSet, metadata_only=True)
    async with gangline_client(control_plane.kubeconfig) as client:
        whole = await client.list(WHOLE, namespace=cluster.namespace)
        listed = await client.list(bare, namespace=cluster.namespace)
        got = await client.get(DEPLOYMENTS, "serve", namespace=cluster.namespace)

    assert [each.spec.replicas for each in whole.items] == [3]
    assert [each.spec.replicas for each in listed.items] == [None] and listed.resource_version
    assert (got.metadata.annotations or {})["topology.scheduler/gpu-count"] == "8"


async def test_a_watch_of_metadata_goes_on_from_the_list(cluster: Api, control_plane: Source) -> None:
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/serve"
    seen: list[tuple[EventType, str]] = []
    async with gangline_client(control_plane.kubeconfig) as client:
        start = (await client.list(DEPLOYMENTS, namespace=cluster.namespace)).resource_version
        await cluster.create(deployment("serve", {"said": "one"}))
        await cluster.merge(path, {"metadata": {"annotations": {"said": "two"}}})
        await cluster.delete(path)
        events = client.watch(DEPLOYMENTS, resource_version=start, namespace=cluster.namespace)
        async with asyncio.timeout(60), aclosing(events):  # type: ignore[type-var]  # an async generator, by contract
            async for event in events:
                if event.object is not None:
                    seen.append((event.type, (event.object.metadata.annotations or {}).get("said", "")))
                if event.type is EventType.DELETED:
                    break

    assert (seen[0], seen[-1]) == ((EventType.ADDED, "one"), (EventType.DELETED, "two"))
    assert (EventType.MODIFIED, "two") in seen


# The PodGroup of the chart


async def test_a_pod_group_keeps_every_field(cluster: Api) -> None:
    await install(cluster)
    spec = {"minMember": 4, "minResources": {"cpu": 8, "nvidia.com/gpu": "32"}, "scheduleTimeoutSeconds": 30}
    condition = {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    status = {"phase": "Scheduling", "occupiedBy": "train", "running": 1, "succeeded": 2, "failed": 3}
    status |= {"scheduleStartTime": "2026-01-01T00:00:00Z", "conditions": [condition]}

    made = await cluster.create(pod_group("g", **spec))
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups/g"
    told = await cluster.merge(f"{path}/status", {"status": status})

    assert (made["spec"], told["status"]) == (spec, status)


@pytest.mark.parametrize(
    ("spec", "says"),
    [({"minMember": 0}, "spec.minMember"), ({"scheduleTimeoutSeconds": -1}, "spec.scheduleTimeoutSeconds")],
    ids=["minMember", "timeout"],
)
async def test_a_pod_group_that_makes_no_sense_is_refused(cluster: Api, spec: dict[str, int], says: str) -> None:
    await install(cluster)

    with pytest.raises(Refused, match=says):
        await cluster.create(pod_group("g", **spec))


# The upstream PodGroup


async def test_the_upstream_pod_group_is_found_in_the_version_that_is_served(
    start_control_plane: StartControlPlane,
) -> None:
    plane = start_control_plane(Options(kwok=False, apiserver_args=WITH_POD_GROUPS))
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]},
        "disruptionMode": "PodGroup",
    }
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    cache = Cache()
    pod = cache.record(make_pod("p", scheduling_group=model.SchedulingGroup("g")))
    groups = Groups(cache)
    async with connect(plane.kubeconfig) as api, gangline_client(plane.kubeconfig) as client, following(cache, client):
        assert isinstance(groups.of(pod), Problem)
        await api.create(group)

        found = await api.until(lambda: _membership(groups, pod), "the group is read")

    assert (found.group.min_member, found.group.topology.required) == (4, "topology.kubernetes.io/zone")
    assert found.group.disruptive


async def _membership(groups: Groups, pod: Any) -> Membership | None:
    found = groups.of(pod)
    return found if isinstance(found, Membership) else None


@asynccontextmanager
async def following(cache: Cache, client: HttpClient) -> AsyncIterator[None]:
    """Both versions of the upstream PodGroup are kept in the cache, as the scheduler does it."""
    clock = FakeClock()
    recorder = EventRecorder(clock, "test")
    cluster = Cluster(cache, SchedulingQueue(), WaitingPods(), recorder, clock, lambda pod: None)
    kinds = (POD_GROUPS_V1BETA1, POD_GROUPS_V1ALPHA2)
    informers = [OptionalInformer(client, kind, StoreHandler(cluster, kind)) for kind in kinds]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        for informer in informers:
            await informer.synced.wait()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
