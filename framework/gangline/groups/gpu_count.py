"""Workloads that say how many GPUs they take in all; the number of members follows from the GPUs of one pod."""

from __future__ import annotations

from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem
from gangline.errors import InvalidObject
from gangline.groups.constraints import constraints_of
from gangline.groups.forming import attempt, member, missing, slices_of
from gangline.groups.keys import GANG, GPU_COUNT
from gangline.groups.owners import (
    CONTROLLERS,
    annotations_of,
    controller_of,
    is_followed,
    job_pods_to_come,
    pods_of,
    starts_in_turn,
    workload_of,
)
from gangline.groups.parsing import flag, invalid, number
from gangline.groups.reading import Lookup
from gangline.kube.resources import GPU_CLAIMS, Resource
from gangline.model import Job, OwnerReference, ReplicaSet
from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import CLAIM, GPU, SHARED_GPU, GpuClaim

_GPUS = (GPU, "amd.com/gpu", SHARED_GPU)


class GpuCountReader:
    """Reads the annotation topology.scheduler/gpu-count of a workload or its pods; a single pod is no group.

    If the pods request no GPUs themselves, all pods of the workload are members. Pods of a Job that have succeeded are
    not waited for. `gangline.dev/gang: "false"` keeps a workload from being a gang.
    """

    dialect = "gpu-count"
    watches: tuple[Resource[Any], ...] = (GPU_CLAIMS, *CONTROLLERS)

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        owner = controller_of(pod.owners)
        annotations = annotations_of(pod, lookup) if owner is not None else {}
        if owner is None or GPU_COUNT not in annotations:
            return None
        try:
            if flag(annotations, GANG) is False:
                return None
            members, size = _sizes(pod, owner, lookup)
        except InvalidObject as error:
            return Problem(f"{self.dialect}:{pod.namespace}/{owner.name}", str(error))
        if max(members, size) == 1:
            return None
        return attempt(self.dialect, pod, owner.name, lambda: self._member(pod, owner, members, size, lookup))

    def _member(self, pod: PodInfo, owner: OwnerReference, members: int, size: int, lookup: Lookup) -> Membership:
        constraints = constraints_of(annotations_of(pod, lookup))
        workload = workload_of(pod, lookup)
        whole, of_all = members, size
        if isinstance(workload, Job):
            of_all = max(size, workload.spec.completions or 0)
            to_come = job_pods_to_come(workload)
            whole = members if to_come == size else 0  # it is not known which slices have succeeded
            members, size = min(members, to_come), to_come
        group = PodGroup(
            pod.namespace,
            owner.name,
            self.dialect,
            members,
            size=size,
            topology=constraints.topology,
            subgroups=slices_of(whole, of_all, constraints),
            knows_succeeded=isinstance(workload, Job),
        )
        return member(pod, group, constraints)


def gpus_of(pod: PodInfo, lookup: Lookup) -> int:
    """The number of GPUs of one pod, by its claim or its requests; only GpuClaims are looked up."""
    name = pod.annotations.get(CLAIM)
    claim: GpuClaim | None = lookup.store(GPU_CLAIMS).get(name, pod.namespace) if name else None
    if claim is not None:
        return max(claim.spec.devices.count, 0)
    return sum(pod.cls.requests.real.get(resource, 0) for resource in _GPUS)


def _sizes(pod: PodInfo, owner: OwnerReference, lookup: Lookup) -> tuple[int, int]:
    """The least number of members, and the number of all members. Raises InvalidObject."""
    total = number(annotations_of(pod, lookup), GPU_COUNT)
    workload = workload_of(pod, lookup)
    if workload is None and is_followed(owner):
        raise missing(owner.kind, pod.namespace, owner.name)
    size = pods_of(workload) or 0
    each = gpus_of(pod, lookup)
    members = -(-(total or 0) // each) if each else size
    if not members:
        raise invalid(GPU_COUNT, total, f"the pods ask for no GPUs, and {owner.kind} {owner.name} has no known size")
    if size and members > size:
        why = f"that takes {members} pods with {each} GPUs each, and {owner.kind} {owner.name} has {size} pods"
        raise invalid(GPU_COUNT, total, why)
    if isinstance(workload, ReplicaSet) and workload.spec.replicas:
        members = min(members, workload.spec.replicas)  # smaller than its Deployment during a rollout
    return (1 if starts_in_turn(workload) else members), size
