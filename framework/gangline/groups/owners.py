"""The owners of a pod along its chain of controllers: their annotations, the topmost owner, and the number of pods.

    Pod -> Job -> CronJob | JobSet        Pod -> ReplicaSet -> Deployment        Pod -> StatefulSet -> LeaderWorkerSet

Rules:
- A controller of another kind ends the chain: only its name is known.
- An owner reference is accepted if an object exists with the same namespace, kind, name and UID. The UID alone proves
  nothing: a user who may create a pod can write any value there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.groups import keys
from gangline.groups.parsing import number
from gangline.groups.reading import Lookup
from gangline.groups.seen import Seen, Sight
from gangline.kube.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    LEADER_WORKER_SETS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from gangline.model import Job, JobSet, LeaderWorkerSet, OwnerReference, ReplicaSet, StatefulSet, TypedReference
from gangline.state.pods import PodInfo

CONTROLLERS: tuple[Resource[Any], ...] = (
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    REPLICATION_CONTROLLERS,
    DEPLOYMENTS,
    CRON_JOBS,
    JOB_SETS,
    LEADER_WORKER_SETS,
)
"""The kinds whose objects are looked up along the chain."""
_CONTROLLERS = {(each.group, each.kind): each for each in CONTROLLERS}
_UNREAD = "kubectl.kubernetes.io/last-applied-configuration"
_NO_ANNOTATIONS: Mapping[str, str] = {}
OwnerKey = tuple[str, str, str, str, str]
"""Namespace, apiVersion, kind, name and UID: the identity of an owner."""
_LONGEST = 8
"""Controllers above each other, at most; a longer chain is a cycle."""
_MOST = 50_000
"""Controllers that are remembered, at most; beyond that all are dropped, as most of them no longer exist."""


class Chain(msgspec.Struct, frozen=True):
    """The known controllers of a pod."""

    objects: tuple[Any, ...]
    """The controllers, from the nearest on."""
    annotations: Mapping[str, str]
    """The controllers' annotations; the nearest one wins."""
    top: TypedReference


def controller_of(owners: list[OwnerReference]) -> OwnerReference | None:
    """The owner that is the controller of an object."""
    for owner in owners:
        if owner.controller:
            return owner
    return None


def key_of(reference: OwnerReference, namespace: str) -> OwnerKey:
    """The identity of the owner in an owner reference of an object in this namespace."""
    return namespace, reference.api_version, reference.kind, reference.name, reference.uid


def is_followed(reference: OwnerReference) -> bool:
    """Whether objects of this kind are looked up."""
    return (reference.api_version.rpartition("/")[0], reference.kind) in _CONTROLLERS


def starts_in_turn(found: Any) -> bool:
    """Whether a controller creates a pod only when the pod before it is ready."""
    return isinstance(found, StatefulSet) and found.spec.pod_management_policy != "Parallel"


def _find(reference: OwnerReference, namespace: str, lookup: Lookup) -> Any:
    """The object of an owner reference; None if it does not exist, or a new object has its name."""
    kind = _CONTROLLERS.get((reference.api_version.rpartition("/")[0], reference.kind))
    found = lookup.store(kind).get(reference.name, namespace) if kind is not None else None
    return found if found is not None and found.metadata.uid == reference.uid else None


def chain_of(reference: OwnerReference, namespace: str, lookup: Lookup) -> Chain:
    """The chain that begins with this controller."""
    objects: list[Any] = []
    top: OwnerReference | None = reference
    while top is not None and len(objects) < _LONGEST and (found := _find(top, namespace, lookup)) is not None:
        objects.append(found)
        above = _above(found, lookup)
        if above is None:
            break
        top = above
    merged: dict[str, str] = {}
    for each in reversed(objects):
        merged.update(each.metadata.annotations or _NO_ANNOTATIONS)
    merged.pop(_UNREAD, None)
    last = top if top is not None else reference
    return Chain(tuple(objects), merged, TypedReference(last.kind, namespace, last.name, last.uid, last.api_version))


def annotations_of(pod: PodInfo, lookup: Lookup) -> Mapping[str, str]:
    """The pod's annotations and those of its controllers; the nearest one wins."""
    chain = _behind(pod, lookup)
    return pod.annotations if chain is None else {**chain.annotations, **pod.annotations}


def annotations_with(pod: PodInfo, obj: Any, lookup: Lookup) -> Mapping[str, str]:
    """The annotations of the pod, of the object that represents its group, and of its controllers.

    If several have the same key, the first of them wins.
    """
    return {**annotations_of(pod, lookup), **(obj.metadata.annotations or _NO_ANNOTATIONS), **pod.annotations}


def workload_of(pod: PodInfo, lookup: Lookup) -> Any:
    """The object that is the controller of a pod; None if it does not exist, or is not looked up."""
    chain = _behind(pod, lookup)
    return chain.objects[0] if chain is not None and chain.objects else None


def sizes_of(pod: PodInfo, lookup: Lookup) -> tuple[int, int] | None:
    """How many pods the owners of a pod create at once, and in all; None if unknown."""
    chain = _behind(pod, lookup)
    for each in reversed(chain.objects if chain is not None else ()):
        if size := pods_of(each):
            return (1 if starts_in_turn(each) else size), size
    return None


def job_size(parallelism: int | None, completions: int | None) -> int:
    """How many pods of a job run at the same time."""
    at_once = 1 if parallelism is None else parallelism
    return at_once if completions is None else min(at_once, completions)


def job_pods_to_come(job: Job) -> int:
    """How many pods of a job still run together: pods that have succeeded are not created again."""
    size = job_size(job.spec.parallelism, job.spec.completions)
    if job.spec.completions is None:
        return max(size, 1)
    return max(1, min(size, job.spec.completions - job.status.succeeded))


def _behind(pod: PodInfo, lookup: Lookup) -> Chain | None:
    """The chain of a pod, from the remembered chains if the lookup has them."""
    reference = controller_of(pod.owners)
    if reference is None:
        return None
    known: Chain | None = lookup.chain(reference, pod.namespace) if isinstance(lookup, Seen) else None
    return chain_of(reference, pod.namespace, lookup) if known is None else known


class Owners:
    """Annotations and topmost owner of pods, remembered for each controller until an object of its chain changes."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._chains: dict[OwnerKey, tuple[Chain, Sight]] = {}

    def annotations(self, pod: PodInfo) -> Mapping[str, str]:
        """The pod's annotations and those of its controllers; the nearest one wins."""
        reference = controller_of(pod.owners)
        if reference is None:
            return pod.annotations
        owned = self.chain(reference, pod.namespace)[0].annotations
        return {**owned, **pod.annotations} if owned else pod.annotations

    def top(self, pod: PodInfo) -> TypedReference:
        """The topmost controller; the pod itself if it has none."""
        reference = controller_of(pod.owners)
        if reference is None:
            return TypedReference("Pod", pod.namespace, pod.name, pod.uid, "v1")
        return self.chain(reference, pod.namespace)[0].top

    def chain(self, reference: OwnerReference, namespace: str) -> tuple[Chain, Sight]:
        """The chain that begins with this controller, and the objects from which it was read."""
        key = key_of(reference, namespace)
        known = self._chains.get(key)
        if known is not None and known[1].holds():
            return known
        if len(self._chains) > _MOST:
            self._chains.clear()
        seen = Seen(self._lookup)
        chain = chain_of(reference, namespace, seen)
        made = self._chains[key] = (chain, seen.sight())
        return made


def _above(found: Any, lookup: Lookup) -> OwnerReference | None:
    """The controller of a controller; None if it has none.

    The StatefulSet of a replica's workers is owned by the leader, which is a pod. A label of the StatefulSet names the
    LeaderWorkerSet above both.
    """
    metadata = found.metadata
    reference = controller_of(metadata.owner_references)
    if reference is None or reference.kind != "Pod":
        return reference
    name = (metadata.labels or _NO_ANNOTATIONS).get(keys.LWS_NAME, "")
    above = lookup.store(LEADER_WORKER_SETS).get(name, metadata.namespace) if name else None
    if above is None:
        return None
    return OwnerReference(LEADER_WORKER_SETS.kind, name, above.metadata.uid, LEADER_WORKER_SETS.api_version)


def pods_of(found: Any) -> int | None:
    """The number of pods of an object; None for a kind that does not say."""
    if isinstance(found, Job):
        return job_size(found.spec.parallelism, found.spec.completions)
    if isinstance(found, ReplicaSet):
        desired = number(found.metadata.annotations or _NO_ANNOTATIONS, keys.DESIRED_REPLICAS, least=0)
        return desired if desired is not None else _replicas(found.spec.replicas)
    if isinstance(found, StatefulSet):
        return _replicas(found.spec.replicas)
    if isinstance(found, JobSet):
        return sum(
            part.replicas * job_size(part.template.spec.parallelism, part.template.spec.completions)
            for part in found.spec.replicated_jobs
        )
    if isinstance(found, LeaderWorkerSet):
        return found.spec.leader_worker_template.size
    return None


def _replicas(replicas: int | None) -> int:
    return 1 if replicas is None else replicas
