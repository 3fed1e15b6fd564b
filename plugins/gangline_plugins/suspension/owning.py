"""Decides which owners are suspended to take pods off their nodes: owners that ask for it and lose all of their pods.

Rules:
- The owner is a Job that has no controller or belongs to a CronJob; or the JobSet of a Job, if the JobSet has no
  controller. An object of any other controller is left alone, because that controller may resume it at any time.
- An object that Kueue admits is not suspended here. Kueue is asked to take it off: the owner is then the Workload of
  the topmost object. An object with labels of Kueue but without a running Workload is left alone.
- All pods of the owner that have a node have to go. A pod that waits at permit keeps its owner from being suspended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from gangline import Handle, PodInfo, State, model, resources
from gangline_plugins.suspension.kueue import KueueWorkloads, is_of_kueue, may_be_stopped
from gangline_plugins.telling import Teller

EVICTION = "gangline.dev/eviction"
"""On a pod or its workload: suspend or evict."""
SUSPENDABLE: tuple[resources.Resource[Any], ...] = (resources.JOBS, resources.JOB_SETS, resources.KUEUE_WORKLOADS)
"""The kinds of owners."""
_CRON_JOB = "CronJob"
_MOST_SHOWN = 40


class EvictionPolicy(StrEnum):
    """How the pods of a workload are taken off their nodes."""

    SUSPEND = "suspend"
    """The workload is suspended, if all of its pods have to go."""
    EVICT = "evict"
    """Each pod is evicted."""


class SuspendableOwner(msgspec.Struct, frozen=True):
    """A Job, a JobSet, or the Workload by which Kueue admits an object of any kind."""

    resource: resources.Resource[Any]
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """The kind, namespace and name of the owner, for messages."""
        return f"{self.resource.kind} {self.namespace}/{self.name}"

    @property
    def is_of_kueue(self) -> bool:
        """Whether it is a Workload of Kueue."""
        return self.resource == resources.KUEUE_WORKLOADS

    @property
    def reference(self) -> model.TypedReference:
        """A reference to the owner, for events."""
        resource = self.resource
        return model.TypedReference(resource.kind, self.namespace, self.name, self.uid, resource.api_version)


class OwnedPods(msgspec.Struct, frozen=True, eq=False):
    """An owner that may be suspended, and its pods that have a node."""

    owner: SuspendableOwner
    pods: list[PodInfo] = msgspec.field(default_factory=list)


def whole_owners(handle: Handle, pods: Sequence[PodInfo]) -> list[OwnedPods]:
    """The owners to suspend to take these pods off their nodes. None of them has other pods with a node."""
    found: dict[str, OwnedPods] = {}
    owners = OwnerSearch(handle.state)
    for pod in pods:
        if pod.controller is not None and policy_of(handle, pod) is EvictionPolicy.SUSPEND:
            owner = owners.of(pod)
            if owner is not None:
                found.setdefault(owner.uid, OwnedPods(owner)).pods.append(pod)
    if not found:
        return []
    going = {pod.uid for pod in pods}
    namespaces = {each.owner.namespace for each in found.values()}
    for pod in handle.state.pods.values():
        if pod.namespace in namespaces and pod.controller is not None and not pod.terminating:
            stays = pod.uid not in going or handle.waiting.get(pod.uid) is not None
            if stays and (owner := owners.of(pod)) is not None:
                found.pop(owner.uid, None)
    return list(found.values())


def policy_of(handle: Handle, pod: PodInfo) -> EvictionPolicy:
    """The policy that a pod or its workload names; EVICT by default. An event on the pod reports any other word."""
    said = handle.workload(pod).get(EVICTION)
    if said is None or said in list(EvictionPolicy):
        return EvictionPolicy(said or EvictionPolicy.EVICT)
    note = f'{EVICTION} has to be suspend or evict, not "{said[:_MOST_SHOWN]}"; pods are evicted'
    Teller(handle).once(pod, "InvalidEviction", note)
    return EvictionPolicy.EVICT


class OwnerSearch:
    """Finds the owners of pods that may be suspended, by the objects of the moment; made anew for each decision."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._workloads = KueueWorkloads(state)

    def of(self, pod: PodInfo) -> SuspendableOwner | None:
        """The owner of a pod that may be suspended; None if there is none."""
        job, job_set = job_of(self._state, pod), None
        above = controller_of(job.metadata.owner_references) if job is not None else None
        if above is not None:
            job_set = _found(self._state, resources.JOB_SETS, above, pod.namespace)
        chain = [each.metadata for each in (job, job_set) if each is not None]
        over = [pod.controller, *(controller_of(meta.owner_references) for meta in chain)]
        workloads = self._workloads.of(pod.namespace, [each.uid for each in over if each is not None])
        if workloads:
            is_one = len(workloads) == 1 and may_be_stopped(workloads[0])
            return _named(resources.KUEUE_WORKLOADS, workloads[0]) if is_one else None
        if is_of_kueue(pod.labels, pod.annotations) or any(is_of_kueue(meta.labels) for meta in chain):
            return None
        if job is None or above is None or above.kind == _CRON_JOB:
            return None if job is None else _named(resources.JOBS, job)
        if job_set is None or controller_of(job_set.metadata.owner_references):
            return None
        return _named(resources.JOB_SETS, job_set)


def job_of(state: State, pod: PodInfo) -> model.Job | None:
    """The Job that controls a pod; None if there is none."""
    controller = pod.controller
    found: model.Job | None = None
    if controller is not None:
        found = _found(state, resources.JOBS, controller, pod.namespace)
    return found


def controller_of(owners: Iterable[model.OwnerReference]) -> model.OwnerReference | None:
    """The owner that is the controller."""
    return next((each for each in owners if each.controller), None)


def _found(state: State, resource: resources.Resource[Any], owner: model.OwnerReference, namespace: str) -> Any:
    """The object of an owner reference; None if it does not exist, or is of another kind."""
    if (owner.api_version.rpartition("/")[0], owner.kind) != (resource.group, resource.kind):
        return None
    found = state.store(resource).get(owner.name, namespace)
    return found if found is not None and found.metadata.uid == owner.uid else None


def _named(resource: resources.Resource[Any], obj: Any) -> SuspendableOwner:
    return SuspendableOwner(resource, obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)
