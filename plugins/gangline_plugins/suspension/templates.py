"""The pods that a suspended Job or JobSet would create, from its template, to find out whether they have room.

They are as near to the real ones as the template is: what webhooks add to pods is not in them. Claims that would be
made from templates are left out, because nobody has made them. So a workload may be resumed somewhat early; its pods
wait in the queue then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gangline import PodInfo, State, custom_resources, group_keys, model, resources
from gangline_plugins.suspension.owning import SuspendableOwner

MOST_PODS = 4096
"""A workload of more pods is not tried out; it is resumed when its time is over."""
_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")


class TemplateOfPods(model.Object):
    """The template of pods."""

    metadata: model.ObjectMeta = msgspec.field(default_factory=model.ObjectMeta)
    spec: model.PodSpec = msgspec.field(default_factory=model.PodSpec)


class WholeJobSpec(model.Object):
    """spec of a Job, with its template."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    template: TemplateOfPods = msgspec.field(default_factory=TemplateOfPods)


class WholeJob(model.Object):
    """A Job, or the template of one."""

    metadata: model.ObjectMeta = msgspec.field(default_factory=model.ObjectMeta)
    spec: WholeJobSpec = msgspec.field(default_factory=WholeJobSpec)
    status: model.JobStatus = msgspec.field(default_factory=model.JobStatus)


class WholeReplicatedJob(model.Object):
    """A part of a JobSet."""

    name: str = ""
    replicas: int = 1
    template: WholeJob = msgspec.field(default_factory=WholeJob)


class WholeJobSetSpec(model.Object):
    """spec of a JobSet, with its templates."""

    replicated_jobs: list[WholeReplicatedJob] = msgspec.field(default_factory=list)


class WholeJobSet(model.Object):
    """A JobSet."""

    metadata: model.ObjectMeta = msgspec.field(default_factory=model.ObjectMeta)
    spec: WholeJobSetSpec = msgspec.field(default_factory=WholeJobSetSpec)


WITH_TEMPLATES: Mapping[str, resources.Resource[Any]] = {
    each.kind: resources.Resource(each.group, each.version, each.plural, each.kind, type_)
    for each, type_ in ((resources.JOBS, WholeJob), (resources.JOB_SETS, WholeJobSet))
}
"""For each kind of owner, the resource with which to read the owner together with its pod templates."""


def pods_to_come(state: State, owner: SuspendableOwner, found: Any, priority: int) -> list[PodInfo]:
    """Records of the pods that the owner would create; none if there are too many. Raises InvalidObject."""
    made = list(_limited(_of_job_set(state, owner, found) if isinstance(found, WholeJobSet) else _of_job(owner, found)))
    if len(made) > MOST_PODS:
        return []
    return [state.record(_with_priority(pod, priority)).anew() for pod in made]


def _limited(pods: Iterator[model.Pod]) -> Iterator[model.Pod]:
    for pod, _ in zip(pods, range(MOST_PODS + 1), strict=False):
        yield pod


def _of_job(owner: SuspendableOwner, job: WholeJob) -> Iterator[model.Pod]:
    yield from _pods(job, owner.namespace, owner.name, owner.uid, {})


def _of_job_set(state: State, owner: SuspendableOwner, job_set: WholeJobSet) -> Iterator[model.Pod]:
    for part in (each for each in job_set.spec.replicated_jobs if _size(each.template) > 0):
        for number in range(part.replicas):
            name = f"{owner.name}-{part.name}-{number}"
            known = state.store(resources.JOBS).get(name, owner.namespace)
            labels = {
                group_keys.JOB_SET: owner.name,
                group_keys.JOB_SET_PART: part.name,
                group_keys.JOB_SET_JOB: str(number),
            }
            uid = known.metadata.uid if known is not None else f"{owner.uid}-{part.name}-{number}"
            yield from _pods(part.template, owner.namespace, name, uid, labels)


def _pods(job: WholeJob, namespace: str, name: str, uid: str, labels: Mapping[str, str]) -> Iterator[model.Pod]:
    spec, template = job.spec, job.spec.template
    is_indexed = spec.completion_mode == "Indexed"
    reference = model.OwnerReference("Job", name, uid, "batch/v1", controller=True)
    pod_spec = _defaulted(template.spec)
    for index in range(_size(job)):
        mark = {custom_resources.COMPLETION_INDEX: str(index)} if is_indexed else {}
        made = dict.fromkeys(_NAME_LABELS, name)
        meta = model.ObjectMeta(
            name=f"{name}-{index}",
            namespace=namespace,
            uid=f"{uid}-{index}",
            labels={**(template.metadata.labels or {}), **labels, **made, **mark},
            annotations={**(template.metadata.annotations or {}), **mark},
            owner_references=[reference],
        )
        yield model.Pod(metadata=meta, spec=pod_spec)


def _size(job: WholeJob) -> int:
    """How many pods the Job would create at once."""
    at_once = 1 if job.spec.parallelism is None else job.spec.parallelism
    return at_once if job.spec.completions is None else min(at_once, job.spec.completions - job.status.succeeded)


def _defaulted(spec: model.PodSpec) -> model.PodSpec:
    """The spec as the API server completes it in a pod, not in a template; without claims that are yet to be made."""
    return msgspec.structs.replace(
        spec,
        containers=[_requesting(each) for each in spec.containers],
        init_containers=[_requesting(each) for each in spec.init_containers],
        resource_claims=[each for each in spec.resource_claims if each.resource_claim_name],
    )


def _requesting(container: model.Container) -> model.Container:
    """The container with requests for all that it limits."""
    found = container.resources
    if found is None or not found.limits:
        return container
    whole = model.ResourceRequirements({**found.limits, **(found.requests or {})}, found.limits)
    return msgspec.structs.replace(container, resources=whole)


def _with_priority(pod: model.Pod, priority: int) -> model.Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))
