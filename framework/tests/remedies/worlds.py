"""Small clusters as values: a unit that waits on the cluster, its remedies, and the cluster after a remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from gangline import config, model
from gangline.commands.judging import Judged, judge
from gangline.kube.resources import GPU_CLAIMS, GPU_NODE_STATUSES, NODES, PDBS, PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.queueing.units import Unit
from gangline.remedies import Remedies, Remedy, RemedyKind, find_remedies, joined
from gangline.simulate import Kubelet, SimulatedClient, SimulatedCluster, running
from gangline.state.cache import Cache
from gangline.testing import make_node, make_pod
from gangline.testing.gang_stories import PROFILE
from gangline.testing.gangs import GROUP, LEAF, PREFERRED, REQUIRED, SPINE
from gangline.wire.custom_resources import (
    GPU,
    GpuClaim,
    GpuDevice,
    GpuNodeStatus,
    GpuNodeStatusSpec,
    GpuNodeStatusStatus,
)

PREEMPTING = PROFILE.replace("}]", "}, {name: GangPreemption}, {name: GpuClaim}]")


@dataclass(frozen=True)
class World:
    """Nodes, pods that run, and one pod or gang that waits."""

    nodes: tuple[model.Node, ...]
    waiting: tuple[model.Pod, ...]
    running: tuple[model.Pod, ...] = ()
    min_member: int = 0
    """The members that the gang needs; 0 for a pod on its own."""
    reports: tuple[GpuNodeStatus, ...] = ()
    claims: tuple[GpuClaim, ...] = ()
    budgets: tuple[model.PodDisruptionBudget, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    """Other groups: the name and minMember."""

    def cluster(self) -> SimulatedCluster:
        """The world on an API server in memory."""
        made = SimulatedCluster()
        made.create(NODES, *_copies(self.nodes))
        made.create(GPU_NODE_STATUSES, *_copies(self.reports))
        made.create(GPU_CLAIMS, *_copies(self.claims))
        made.create(PDBS, *_copies(self.budgets))
        own = [("unit", self.min_member)] if self.min_member else []
        for name, least in (*own, *self.groups):
            meta = model.ObjectMeta(name=name, namespace="default")
            made.create(SCHEDULER_PLUGINS_POD_GROUPS, model.PodGroup(meta, model.PodGroupSpec(min_member=least)))
        made.create(PODS, *_copies(self.running), *_copies(self.waiting))
        return made

    def judged(self, profile: str = PREEMPTING) -> Judged:
        """The world as `gangline explain` lists it."""
        cluster = self.cluster()
        loaded = config.load(profile, "test")
        return cluster.play(lambda: judge(SimulatedClient(cluster.server), loaded, cluster.clock))

    def remedies(self) -> Remedies:
        """The remedies for the unit, each of which is told when it is found; the columns are as before."""
        judged = self.judged()
        unit = next(iter(judged.groups.values()), None) or Unit([*judged.pending], added=0.0)
        before = digest(judged.cluster)
        told: list[Remedies] = []
        found = find_remedies(unit, judged.runtimes["gangs"], judged.cluster, {}, 0.0, told.append)
        assert digest(judged.cluster) == before
        assert not any(part.is_complete for part in told)
        assert joined([*told, msgspec.structs.replace(found, remedies=())]) == found
        return found

    def starts(self) -> bool:
        """Whether a scheduler places the unit within two minutes."""
        cluster = self.cluster()
        least = self.min_member or 1

        async def story() -> bool:
            client = SimulatedClient(cluster.server)
            kubelet = Kubelet(cluster.server, cluster.clock)
            async with cluster.scheduling(PREEMPTING, client), running(kubelet.run()):
                try:
                    await cluster.until(lambda: len(cluster.bound("unit")) >= least, 120.0)
                except TimeoutError:
                    return False
            return True

        return cluster.play(story)

    def after(self, remedy: Remedy) -> World:
        """The world after the remedy was carried out."""
        return _CARRIED_OUT[remedy.kind](self, remedy.values)

    def with_waiting(self, change: Callable[[model.Pod], None]) -> World:
        """The world with other waiting pods."""
        pods = _copies(self.waiting)
        for pod in pods:
            change(pod)
        return replace(self, waiting=tuple(pods))


def node(
    name: str, leaf: int, gpus: int = 8, allocatable_gpus: int | None = None, spine: int = 0, **more: Any
) -> model.Node:
    """A node under a leaf; fewer of its GPUs may be allocatable than it has."""
    labels = {SPINE: f"spine-{spine}", LEAF: f"leaf-{leaf}"}
    made = make_node(name, gpus=gpus, cpu=64, memory="512Gi", labels=labels, **more)
    made.status.capacity = dict(made.status.allocatable or {})
    if allocatable_gpus is not None:
        made.status.allocatable = {**made.status.capacity, GPU: allocatable_gpus}
    return made


def report(name: str, gpus: int = 8, unhealthy: Sequence[int] = ()) -> GpuNodeStatus:
    """The report of a node's agent on its GPUs."""
    devices = [
        GpuDevice(number, f"GPU-{name}-{number}", health="Unhealthy" if number in unhealthy else "Healthy")
        for number in range(gpus)
    ]
    status = GpuNodeStatusStatus(gpus, gpus - len(unhealthy), devices=devices, heartbeat_time="2026-01-01T00:00:00Z")
    return GpuNodeStatus(model.ObjectMeta(name=name), GpuNodeStatusSpec(name), status)


def occupant(name: str, node: str, gpus: int, priority: int = 0, **more: Any) -> model.Pod:
    """A running pod that its ReplicaSet would create again."""
    pod = make_pod(name, gpus=gpus, node=node, priority=priority, scheduler_name="gangs", **more)
    pod.metadata.owner_references = [model.OwnerReference("ReplicaSet", name, name, "apps/v1", controller=True)]
    pod.status.phase = "Running"
    return pod


def waiting(number: int = 0, gpus: int = 8, annotations: Mapping[str, str] | None = None, **more: Any) -> model.Pod:
    """A pod that waits."""
    return make_pod(f"unit-{number}", gpus=gpus, annotations=annotations, scheduler_name="gangs", **more)


def members(size: int, gpus: int = 8, level: str = "leaf", **more: Any) -> tuple[model.Pod, ...]:
    """The members of a gang that wait."""
    annotations = {REQUIRED: level} if level else {}
    return tuple(waiting(number, gpus, annotations, labels={GROUP: "unit"}, **more) for number in range(size))


# After a remedy


def _repaired(world: World, values: Mapping[str, Any]) -> World:
    nodes, reports = _copies(world.nodes), _copies(world.reports)
    for each in nodes:
        if each.metadata.name in values["nodes"]:
            each.spec.unschedulable = False
            each.spec.taints = [t for t in each.spec.taints if not t.key.startswith("node.kubernetes.io/")]
            each.status.allocatable = dict(each.status.capacity or {})
    for report in reports:
        if report.metadata.name in values["nodes"]:
            for device in report.status.devices:
                device.health = "Healthy"
    return replace(world, nodes=tuple(nodes), reports=tuple(reports))


def _tolerating(world: World, values: Mapping[str, Any]) -> World:
    operator = "Equal" if values["value"] else "Exists"
    more = model.Toleration(values["key"], operator, values["value"], values["effect"])

    def change(pod: model.Pod) -> None:
        pod.spec.tolerations = [*pod.spec.tolerations, more]

    return world.with_waiting(change)


def _preferring(world: World, values: Mapping[str, Any]) -> World:
    def change(pod: model.Pod) -> None:
        annotations = pod.metadata.annotations or {}
        annotations[PREFERRED] = annotations.pop(REQUIRED)

    return world.with_waiting(change)


def _wider(world: World, values: Mapping[str, Any]) -> World:
    return world.with_waiting(lambda pod: (pod.metadata.annotations or {}).update({REQUIRED: values["to"]}))


def _smaller(world: World, values: Mapping[str, Any]) -> World:
    def change(pod: model.Pod) -> None:
        resource, amount = values["resource"], values["quantity"]
        given = pod.spec.containers[0].resources
        assert given is not None
        given.requests = {**(given.requests or {}), resource: amount}
        if resource in (given.limits or {}):
            given.limits = {**(given.limits or {}), resource: amount}

    return world.with_waiting(change)


def _raised(world: World, values: Mapping[str, Any]) -> World:
    def change(pod: model.Pod) -> None:
        pod.spec.priority = values["priority"]

    return world.with_waiting(change)


def _preferring_nodes(world: World, values: Mapping[str, Any]) -> World:
    def change(pod: model.Pod) -> None:
        selector = pod.spec.node_selector or {}
        pod.spec.node_selector = {key: value for key, value in selector.items() if key not in values["labels"]}
        if values["nodeAffinity"] and pod.spec.affinity is not None and pod.spec.affinity.node_affinity is not None:
            pod.spec.affinity.node_affinity.required = None

    return world.with_waiting(change)


def _moved(world: World, values: Mapping[str, Any]) -> World:
    to = {step["pod"]: step["to"] for step in values["moves"]}
    pods = _copies(world.running)
    for pod in pods:
        pod.spec.node_name = to.get(f"default/{pod.metadata.name}", pod.spec.node_name)
    return replace(world, running=tuple(pods))


def _freed(world: World, values: Mapping[str, Any]) -> World:
    gone = {key.partition("/")[2] for key in values["pods"]}
    return replace(world, running=tuple(pod for pod in world.running if pod.metadata.name not in gone))


_CARRIED_OUT: Mapping[RemedyKind, Callable[[World, Mapping[str, Any]], World]] = {
    RemedyKind.REPAIR_NODES: _repaired,
    RemedyKind.TOLERATE_TAINT: _tolerating,
    RemedyKind.PREFER_NODES: _preferring_nodes,
    RemedyKind.PREFER_LEVEL: _preferring,
    RemedyKind.WIDEN_LEVEL: _wider,
    RemedyKind.FEWER_MEMBERS: lambda world, values: replace(world, min_member=values["minMember"]),
    RemedyKind.SMALLER_REQUESTS: _smaller,
    RemedyKind.RAISE_PRIORITY: _raised,
    RemedyKind.MOVE_PODS: _moved,
    RemedyKind.FREE_ROOM: _freed,
}


def _copies(objects: Sequence[Any]) -> list[Any]:
    return [msgspec.convert(msgspec.to_builtins(each), type(each)) for each in objects]


def digest(cache: Cache) -> dict[str, Any]:
    """The whole content of the cache about nodes and pods, as plain values."""
    nodes, size = cache.nodes, cache.nodes.size
    resources = {name: nodes.axis.row(name) for name in nodes.axis.names if name}
    labels = [nodes.labels.column(key, nodes.everything) for key in (SPINE, LEAF, "kubernetes.io/hostname")]
    return {
        "names": list(nodes.names),
        "alive": nodes.alive[:size].tolist(),
        "unschedulable": nodes.unschedulable[:size].tolist(),
        "taints": [nodes.taint_sets[number] for number in nodes.taints[:size]],
        "allocatable": {name: nodes.allocatable[row, :size].tolist() for name, row in resources.items()},
        "requested": {name: nodes.requested[row, :size].tolist() for name, row in resources.items()},
        "nonzero": nodes.nonzero[:, :size].tolist(),
        "labels": [np.array([*column.values, ""], dtype=object)[column.ids].tolist() for column in labels],
        "pods on": [sorted(pods) for pods in nodes.pods_on],
        "pods": {uid: (pod.row, pod.node_name, cache.is_assumed(uid)) for uid, pod in cache.pods.items()},
        "objects": {key: [msgspec.to_builtins(each) for each in store] for key, store in cache.stores.items()},
        "nodes": [msgspec.to_builtins(each) for each in nodes.objects],
    }
