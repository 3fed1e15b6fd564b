"""What would let a pod start whose ResourceClaim finds no devices, because pods of the same priority have them."""

from __future__ import annotations

from typing import Any

from gangline import config
from gangline.commands.judging import judge
from gangline.kube.resources import PODS
from gangline.queueing.units import Unit
from gangline.remedies import Remedies, RemedyKind, find_remedies
from gangline.simulate import ClaimController, Kubelet, SimulatedClient, SimulatedCluster, running

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: claims
"""


def placed(cluster: SimulatedCluster, *pods: dict[str, Any]) -> None:
    """Let pods be created and placed."""
    for pod in pods:
        cluster.server.apply_manifest(pod)

    async def story() -> None:
        client = SimulatedClient(cluster.server)
        works = (Kubelet(cluster.server, cluster.clock).run(), ClaimController(cluster.server).run())
        async with cluster.scheduling(PROFILE, client), running(*works):
            await cluster.until(lambda: len(cluster.bound()) == len(pods))

    cluster.play(story)


def with_devices(*nodes: str, devices: int = 4) -> SimulatedCluster:
    """Nodes with devices, a class for them, and a claim of two devices for each of the pods a, b and new."""
    cluster = SimulatedCluster()
    for name in nodes:
        add_node(cluster, name, devices)
    selectors = [{"cel": {"expression": 'device.driver == "gpu.lab"'}}]
    cluster.server.apply_manifest(dra("DeviceClass", "gpu", {"selectors": selectors}))
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    for name in ("a", "b", "new"):
        cluster.server.apply_manifest(
            dra("ResourceClaim", name, {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}, "default")
        )
    return cluster


def add_node(cluster: SimulatedCluster, name: str, devices: int) -> None:
    status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}
    cluster.server.apply_manifest({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
    pool = {"name": name, "resourceSliceCount": 1, "generation": 1}
    listed = [{"name": f"gpu-{number}"} for number in range(devices)]
    cluster.server.apply_manifest(
        dra("ResourceSlice", name, {"driver": "gpu.lab", "nodeName": name, "pool": pool, "devices": listed})
    )


def dra(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def claiming(name: str, **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpus"}]}}
    claims = [{"name": "gpus", "resourceClaimName": name}]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
    metadata = {"name": name, "namespace": "default", "ownerReferences": [owner]}
    spec = {"schedulerName": "claims", "containers": [container], "resourceClaims": claims, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def remedies(cluster: SimulatedCluster, pod: dict[str, Any]) -> Remedies:
    cluster.server.apply_manifest(pod)
    loaded = config.load(PROFILE, "test")
    judged = cluster.play(lambda: judge(SimulatedClient(cluster.server), loaded, cluster.clock))
    return find_remedies(Unit([*judged.pending], added=0.0), judged.runtimes["claims"], judged.cluster, {}, 0.0)


def test_devices_that_pods_of_the_same_priority_have_come_free_when_these_end() -> None:
    cluster = with_devices("n0")
    placed(cluster, claiming("a"), claiming("b"))

    found = remedies(cluster, claiming("new"))

    raised, freed = found.remedies
    assert (raised.kind, freed.kind) == (RemedyKind.RAISE_PRIORITY, RemedyKind.FREE_ROOM)
    (ends,) = freed.values["pods"]
    assert freed.sentence == f"Wait until 2 devices of node n0 come free, for example when pod {ends} ends."
    assert freed.values["devices"] == 2
    assert raised.values["priority"] == 1
    cluster.server.delete(PODS, ends.rpartition("/")[2], namespace="default")
    assert starts(cluster)


def test_who_has_the_devices_could_move() -> None:
    cluster = with_devices("n0", devices=2)
    placed(cluster, claiming("a"))
    add_node(cluster, "n1", 2)

    found = remedies(cluster, claiming("new", nodeSelector={"kubernetes.io/hostname": "n0"}))

    assert "Move 1 pod: default/a from n0 to n1." in [each.sentence for each in found.remedies]


def starts(cluster: SimulatedCluster) -> bool:
    """Whether a scheduler places the pod `new` within two minutes."""

    async def story() -> bool:
        client = SimulatedClient(cluster.server)
        works = (Kubelet(cluster.server, cluster.clock).run(), ClaimController(cluster.server).run())
        async with cluster.scheduling(PROFILE, client), running(*works):
            try:
                await cluster.until(lambda: bool(cluster.bound("new")), 120.0)
            except TimeoutError:
                return False
        return True

    return cluster.play(story)


def test_a_higher_priority_that_is_shown_lets_the_pod_preempt() -> None:
    cluster = with_devices("n0")
    placed(cluster, claiming("a"), claiming("b"))
    cluster.server.apply_manifest(claiming("new", priority=1))

    assert starts(cluster)
