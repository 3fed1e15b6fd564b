"""Decides which owners may be suspended so that pods go: those all of whose pods go, and who have asked for it.

Rules:
- The owner is a Job that nobody controls, or a CronJob; or the JobSet of a Job, if nobody controls that. What another
  controller has made, that controller may resume at any time.
- What Kueue admits is left alone. Kueue suspends and resumes its workloads itself, and takes one that somebody
  deactivates (`spec.active: false`) for deactivated for good. It starts evicted pods again by its own rules.
- All pods of the owner that have a node are to go. Pods that wait at permit keep their owner from being suspended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gangline import Handle, PodInfo, State, model, resources
from gangline_plugins.telling import Teller

EVICTION = "gangline.dev/eviction"
"""On a pod or its workload: suspend or evict."""
_KUEUE_LABELS = frozenset(("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/podset"))
_KUEUE_WORKLOAD = "kueue.x-k8s.io/workload"
_CRON_JOB = "CronJob"
_MOST_SHOWN = 40
_NONE: Mapping[str, str] = {}


class EvictionPolicy(StrEnum):
    """How the pods of a workload are taken off their nodes."""

    SUSPEND = "suspend"
    """The workload is suspended, if all of its pods have to go."""
    EVICT = "evict"
    """Each pod is evicted."""


@dataclass(frozen=True, slots=True)
class SuspendableOwner:
    """A Job or JobSet."""

    resource: resources.Resource[Any]
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """Its name in messages."""
        return f"{self.resource.kind} {self.namespace}/{self.name}"

    @property
    def reference(self) -> model.TypedReference:
        """What events are about."""
        resource = self.resource
        return model.TypedReference(resource.kind, self.namespace, self.name, self.uid, resource.api_version)


@dataclass(frozen=True, slots=True, eq=False)
class OwnedPods:
    """An owner that may be suspended, and its pods that have a node."""

    owner: SuspendableOwner
    pods: list[PodInfo] = field(default_factory=list)


def whole_owners(handle: Handle, pods: Sequence[PodInfo]) -> list[OwnedPods]:
    """The owners to suspend so that these pods go; no pod of another owner, nor one that may stay, goes with them."""
    found: dict[str, OwnedPods] = {}
    for pod in pods:
        if pod.controller is not None and policy_of(handle, pod) is EvictionPolicy.SUSPEND:
            owner = owner_of(handle.state, pod)
            if owner is not None:
                found.setdefault(owner.uid, OwnedPods(owner)).pods.append(pod)
    if not found:
        return []
    going = {pod.uid for pod in pods}
    namespaces = {each.owner.namespace for each in found.values()}
    for pod in handle.state.pods.values():
        if pod.namespace in namespaces and pod.controller is not None and not pod.terminating:
            stays = pod.uid not in going or handle.waiting.get(pod.uid) is not None
            if stays and (owner := owner_of(handle.state, pod)) is not None:
                found.pop(owner.uid, None)
    return list(found.values())


def policy_of(handle: Handle, pod: PodInfo) -> EvictionPolicy:
    """What a pod or its workload says; a word that is neither is told in an event."""
    said = handle.workload(pod).get(EVICTION)
    if said is None or said in list(EvictionPolicy):
        return EvictionPolicy(said or EvictionPolicy.EVICT)
    note = f'{EVICTION} has to be suspend or evict, not "{said[:_MOST_SHOWN]}"; pods are evicted'
    Teller(handle).once(pod, "InvalidEviction", note)
    return EvictionPolicy.EVICT


def owner_of(state: State, pod: PodInfo) -> SuspendableOwner | None:
    """The owner that is to be suspended so that a pod goes; None if there is none."""
    job = job_of(state, pod)
    if job is None or is_of_kueue(pod.labels, pod.annotations) or is_of_kueue(job.metadata.labels):
        return None
    above = controller_of(job.metadata.owner_references)
    if above is None or above.kind == _CRON_JOB:
        return _named(resources.JOBS, job)
    job_set = _found(state, resources.JOB_SETS, above, pod.namespace)
    if job_set is None or is_of_kueue(job_set.metadata.labels) or controller_of(job_set.metadata.owner_references):
        return None
    return _named(resources.JOB_SETS, job_set)


def job_of(state: State, pod: PodInfo) -> model.Job | None:
    """The Job of a pod."""
    controller = pod.controller
    found: model.Job | None = None
    if controller is not None:
        found = _found(state, resources.JOBS, controller, pod.namespace)
    return found


def is_of_kueue(labels: Mapping[str, str] | None, annotations: Mapping[str, str] = _NONE) -> bool:
    """Whether Kueue says when an object with these labels and annotations runs."""
    return not _KUEUE_LABELS.isdisjoint(labels or _NONE) or _KUEUE_WORKLOAD in annotations


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
