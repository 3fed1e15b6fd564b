"""What changes of a cluster lead to: nothing without a change, and each change what it does on a cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import config
from gangline.clock import rfc3339
from gangline.commands.running import Judges
from gangline.commands.snapshot import take
from gangline.errors import ConfigError
from gangline.explain.snapshots import Snapshot
from gangline.kube.resources import GPU_NODE_STATUSES, NODES, PODS, PRIORITY_CLASSES
from gangline.model import Pod
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, Workloads, running
from gangline.simulate.changing import NewNodes
from gangline.simulate.comparing import Difference, SupposedChanges, compare
from gangline.simulate.manifests import Manifest
from gangline.simulate.restoring import restore
from gangline.testing.gang_stories import PROFILE, GangCluster

GANGS = Judges(config.load(PROFILE, "test"), "test")


def job(name: str, pods: int, gpus: int = 8, scheduler: str = "gangs", **spec: Any) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": gpus}
    containers = [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]
    template = {"spec": {"schedulerName": scheduler, "containers": containers, **spec}}
    body = {"parallelism": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def manifest(**data: Any) -> Manifest:
    return Manifest("new.yaml", "document 1", data)


def settled(cluster: GangCluster) -> Snapshot:
    """A snapshot of the cluster after the scheduler has placed what it can."""

    async def story() -> Snapshot:
        async with cluster.scheduler(), running(Workloads(cluster.server).run()):
            await cluster.until(lambda: all(map(is_decided, cluster.list(PODS))))
            return await take(SimulatedClient(cluster.server), GANGS, cluster.clock)

    def is_decided(pod: Pod) -> bool:
        is_ours = pod.spec.scheduler_name == "gangs"
        return bool(pod.spec.node_name or cluster.message(pod.metadata.name)) or not is_ours

    return cluster.play(story)


def with_jobs(*jobs: dict[str, Any], leaves: int = 2) -> Snapshot:
    cluster = GangCluster(leaves)
    for each in jobs:
        cluster.server.apply_manifest(each)
    return settled(cluster)


def difference(snapshot: Snapshot, seconds: float = 60.0, **changes: Any) -> Difference:
    return compare(snapshot, "cluster.gz", SupposedChanges(**changes), seconds)


def test_without_a_change_there_is_no_difference_and_the_cluster_is_as_it_was() -> None:
    found = difference(with_jobs(job("a", 3), job("b", 4, gpus=4)))

    assert found.pods == [] and found.waiting == []
    assert found.before == found.after
    assert (found.before.nodes, found.before.placed, found.before.gpus.used) == (8, 7, 40)


def test_a_namespace_that_the_cluster_does_not_have_is_pointed_out() -> None:
    def pod(namespace: str) -> Manifest:
        metadata = {"name": "p", "namespace": namespace}
        return manifest(apiVersion="v1", kind="Pod", metadata=metadata, spec={"containers": [{"name": "main"}]})

    made = manifest(apiVersion="v1", kind="Namespace", metadata={"name": "made"})

    found = difference(with_jobs(job("a", 1)), manifests=[made, pod("made"), pod("misspelt"), pod("default")])

    refused = "is not in the cluster: `kubectl apply` would refuse what is simulated in it"
    assert found.warnings == [f"namespace misspelt {refused}"]


def test_new_workloads_are_placed_or_wait_with_the_reason() -> None:
    found = difference(with_jobs(job("a", 6)), manifests=[manifest(**job("b", 3))])

    placed = [each for each in found.pods if each.after]
    (waits,) = (each for each in found.pods if not each.after)
    assert len(placed) == 2 and all(not each.before and each.gpus == 8 for each in placed)
    assert "Insufficient nvidia.com/gpu" in waits.why
    assert [(each.pod, each.before) for each in found.waiting] == [(waits.pod, None)]
    assert (found.before.gpus.used, found.after.gpus.used, found.after.waiting) == (48, 64, 1)


def test_pods_of_a_drained_node_go_elsewhere_if_there_is_room() -> None:
    snapshot = with_jobs(job("a", 7))
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in listed(snapshot, "v1/pods")}
    name, node = next(iter(nodes.items()))

    (moved,) = difference(snapshot, drains=[node]).pods
    full = difference(with_jobs(job("a", 8)), drains=[node])

    assert (moved.pod, moved.before, moved.why) == (f"default/{name}", node, "")
    assert moved.after not in nodes.values()
    assert [bool(each.after) for each in full.pods] == [False]
    assert "1 node(s) were unschedulable" in full.pods[0].why and full.after.waiting == 1


def test_a_drained_pod_without_a_controller_is_gone_and_one_of_a_daemon_set_stays() -> None:
    cluster = GangCluster()
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    for name, owners in (("alone", []), ("daemon", [owner])):
        metadata = {"name": name, "namespace": "default", "ownerReferences": owners}
        spec = {"containers": [{"name": "main"}], "nodeName": "l0-n0"}
        cluster.server.apply_manifest({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    (gone,) = difference(settled(cluster), drains=["l0-n0"]).pods

    assert (gone.pod, gone.before, gone.after) == ("default/alone", "l0-n0", "")
    assert gone.why == "is gone: no controller makes it anew"


def test_new_nodes_take_the_pods_that_wait() -> None:
    snapshot = with_jobs(job("a", 10))

    found = difference(snapshot, new_nodes=[NewNodes(1, "l1-n0"), NewNodes(1, "l1-n0")])

    assert sorted(each.after for each in found.pods) == ["l1-n0-new-1", "l1-n0-new-2"]
    assert all("Insufficient nvidia.com/gpu" in (each.before or "") for each in found.waiting)
    assert (found.before.waiting, found.after.waiting, found.after.nodes) == (2, 0, 10)


def test_a_new_node_has_the_devices_of_its_model_and_not_its_troubles() -> None:
    cluster = GangCluster(1)
    report = {"metadata": {"name": "l0-n0"}, "status": {"devices": [{"id": 0, "uuid": "GPU-0"}]}}
    cluster.server.create(GPU_NODE_STATUSES, report)
    taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}, {"key": "mine", "effect": "NoExecute"}]
    cluster.server.patch(NODES, "l0-n0", {"spec": {"unschedulable": True, "taints": taints}})

    found = difference(settled(cluster), new_nodes=[NewNodes(2, "l0-n0")], manifests=[manifest(**job("a", 5))])

    assert found.after.nodes == 6
    assert len([each for each in found.pods if "untolerated taint" in each.why]) == 2


def test_another_profile_serves_all_schedulers() -> None:
    nobody = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: "
    other = config.load(f"{nobody}[{{schedulerName: other}}]", "test")

    found = difference(with_jobs(job("a", 1, scheduler="other")), configuration=other)

    assert found.waiting[0].before == "no profile serves the scheduler name other" and found.waiting[0].after is None
    assert [bool(each.after) for each in found.pods] == [True]


def test_a_pod_that_is_preempted_comes_again_and_waits() -> None:
    found = difference(with_jobs(job("a", 8)), manifests=[manifest(**job("urgent", 1, priority=100))])

    assert [each.pod.startswith("default/urgent") for each in found.pods] == [False, True]
    assert found.pods[0].before == found.pods[1].after and found.pods[0].why
    assert (found.after.placed, found.after.waiting) == (8, 1)


def test_objects_that_arrive_later_and_pods_that_end_are_part_of_the_story() -> None:
    late = {"metadata": {"name": "late", "annotations": {"gangline.dev/arrive-seconds": "30"}}}
    short = job("short", 1)
    short["spec"]["template"]["metadata"] = {"annotations": {"gangline.dev/run-seconds": "10"}}
    changes = [manifest(**{**job("late", 1), **late}), manifest(**short)]

    early, end = (difference(with_jobs(), seconds, manifests=changes) for seconds in (20.0, 60.0))

    assert early.pods == [] and [each.pod.startswith("default/late") for each in end.pods] == [True]


@pytest.mark.parametrize(
    ("changes", "option"),
    [({"drains": ["nowhere"]}, "--drain"), ({"new_nodes": [NewNodes(1, "nowhere")]}, "--add-nodes")],
    ids=["drain", "new nodes"],
)
def test_a_node_that_is_not_there_is_named(changes: Any, option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}: nowhere: there is no such node; the nodes are "):
        difference(with_jobs(), **changes)


def test_a_simulation_of_an_empty_cluster_has_no_nodes() -> None:
    found = difference(with_jobs(leaves=0), manifests=[manifest(**job("a", 1))])

    assert (found.after.nodes, found.after.waiting) == (0, 1)


# Restoring


def listed(snapshot: Snapshot, resource: str) -> list[dict[str, Any]]:
    return [item for each in snapshot.lists if each.resource == resource for item in each.items]


def restored(snapshot: Snapshot) -> InMemoryServer:
    server = InMemoryServer(VirtualClock(snapshot.taken_at))
    assert restore(snapshot, server, "cluster.gz") == []
    return server


def test_finalizers_of_pods_are_left_out_and_priority_classes_are_made_anew() -> None:
    cluster = GangCluster(1)
    cluster.server.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 7})
    metadata = {"name": "p", "namespace": "default", "finalizers": ["batch.kubernetes.io/job-tracking"]}
    spec = {"containers": [{"name": "main"}], "priorityClassName": "high"}
    cluster.server.apply_manifest({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    server = restored(settled(cluster))

    assert server.get(PRIORITY_CLASSES, "high").data["value"] == 7
    assert "finalizers" not in server.get(PODS, "p", namespace="default").data["metadata"]


@pytest.mark.parametrize(("age", "stays"), [(10.0, False), (1000.0, True)], ids=["heard of", "silent"])
def test_a_report_of_an_agent_that_is_heard_of_does_not_age(age: float, stays: bool) -> None:
    cluster = GangCluster(1)
    time = rfc3339(cluster.clock.now() - age)
    cluster.server.create(GPU_NODE_STATUSES, {"metadata": {"name": "l0-n0"}, "status": {"heartbeatTime": time}})

    report = restored(settled(cluster)).get(GPU_NODE_STATUSES, "l0-n0").data

    assert ("heartbeatTime" in report["status"]) is stays


def test_a_snapshot_with_an_object_without_identity_is_refused() -> None:
    snapshot = with_jobs()
    listed(snapshot, "v1/nodes")[0]["metadata"].pop("uid")

    with pytest.raises(ConfigError, match=r"cluster.gz: v1/nodes: is damaged: an object has no name or no UID"):
        difference(snapshot)


def test_a_kind_that_nobody_knows_is_left_out_and_named() -> None:
    snapshot = with_jobs()
    unknown = msgspec.structs.replace(snapshot.lists[0], resource="example.com/v1/things")
    snapshot = msgspec.structs.replace(snapshot, lists=[*snapshot.lists, unknown])

    assert difference(snapshot).warnings == ["example.com/v1/things: left out, the simulation does not know this kind"]
