"""Decides which variables give the processes of an indexed Job their rank, their number and the first pod's address.

Rules
- Only pods with the annotation `gangline.dev/ranks` get variables. The user's own values stay.
- The rank is the completion index, which the kubelet reads from the pod; the Job says how many ranks there are.
- If a Job does not run all pods at once, its pods get no variables: they would wait for ranks that never start.
- The first pod is the pod with index 0; its address is its name in the headless Service of spec.subdomain.
- JobSets and LeaderWorkerSets have variables and names of their own, so their pods get nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from gangline.errors import GanglineError
from gangline.model import Job, JobSpec, Object, ObjectMeta, OwnerReference, Service
from gangline.wire.custom_resources import CLAIM, COMPLETION_INDEX, GPU, RANKS, GpuClaim
from gangline_webhook.pods import EnvVar, Pod, PodSpec, from_annotation, literal
from gangline_webhook.requesting import requested, whole_gpus

MODES = ("pods", "gpus")
"""One process in each pod, or one for each GPU, which torchrun starts."""
MASTER_ADDR, MASTER_PORT = "MASTER_ADDR", "29500"
"""The variable with the address of the first pod, and the default port of torchrun."""
_FOREIGN = {
    "jobset.sigs.k8s.io/jobset-name": (
        "ranks of a JobSet reach over several Jobs: its label job-index and JOB_COMPLETION_INDEX tell a pod's place"
    ),
    "leaderworkerset.sigs.k8s.io/name": (
        "a LeaderWorkerSet sets LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX itself"
    ),
}
"""Labels of workloads that give their pods ranks themselves."""
_JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")


@dataclass(frozen=True, slots=True)
class Behind:
    """The Job and the Service of a pod, as far as they were found."""

    job: Job | None = None
    service: Service | None = None
    is_service_known: bool = False
    """Whether the Service was looked up; if so, None means that it is missing."""
    doubt: str = ""
    """Why the API server did not answer; empty if it answered or was not asked."""
    is_passing: bool = False
    """Whether the error may pass soon, so that the controller should create the pod again."""


NOTHING = Behind()


@dataclass(frozen=True, slots=True)
class Ranks:
    """The variables of a pod, the warnings for its user, and the reason of a refusal, if any."""

    variables: tuple[EnvVar, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""


class PodTemplate(Object):
    """The pods that a Job makes."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class NewJobSpec(JobSpec):
    """spec of a Job with its pods."""

    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class NewJob(Object):
    """A Job that is about to be created."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NewJobSpec = msgspec.field(default_factory=NewJobSpec)


@dataclass(frozen=True, slots=True)
class _Workers:
    """The Job of a new pod, and what its ranks depend on: the pods of the Job are alike."""

    mode: str
    namespace: str
    job: str
    spec: JobSpec
    pod: PodSpec
    gpus: int | None
    """The GPUs of one pod; None if the number is not known."""
    labels: Mapping[str, str] = field(default_factory=dict)


def asks_for_ranks(pod: Pod) -> bool:
    """Whether a pod wants the variables."""
    return bool(pod.annotation(RANKS))


def job_of(pod: Pod) -> OwnerReference | None:
    """The Job that a pod belongs to; None if there is none, or if a JobSet or LeaderWorkerSet has made the Job."""
    owner = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    is_job = owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/")
    return owner if is_job and not _foreign(pod.metadata.labels) else None


def ranks_of(pod: Pod, namespace: str, claim: GpuClaim | None, behind: Behind) -> Ranks:
    """The answer for a new pod that asks for ranks."""
    owner = job_of(pod)
    labels = pod.metadata.labels or {}
    if owner is None:
        why = _foreign(labels) or "only pods of indexed Jobs have a rank that is known when they are created"
        return Ranks(warnings=(_told(why),))
    if behind.job is None:
        why = _told(f"Job {namespace}/{owner.name} {behind.doubt or 'does not exist'}")
        return Ranks(refusal=why) if behind.is_passing else Ranks(warnings=(why,))
    if claim is None and pod.annotation(CLAIM):
        return Ranks(warnings=(_told(f"GpuClaim {namespace}/{pod.annotation(CLAIM)} is not known"),))
    gpus = claim.spec.devices.count if claim is not None else _gpus(pod.spec) or 0
    workers = _Workers(pod.annotation(RANKS), namespace, owner.name, behind.job.spec, pod.spec, gpus, labels)
    why = _why_none(workers)
    if not why and COMPLETION_INDEX not in (pod.metadata.annotations or {}):
        why = f"the pod has no annotation {COMPLETION_INDEX}"
    if why:
        return Ranks(warnings=(_told(why),))
    return Ranks(tuple(_variables(workers)), tuple(map(_told, _doubts(workers, behind))))


def doubts_of_job(job: NewJob, namespace: str, behind: Behind) -> tuple[str, ...]:
    """Warnings for the user of a new Job whose pods ask for ranks; no user sees the warnings of the pods themselves."""
    template = job.spec.template
    annotations = template.metadata.annotations or {}
    if RANKS not in annotations:
        return ()
    labels = {**(template.metadata.labels or {}), **dict.fromkeys(_JOB_NAMES, job.metadata.name)}
    if foreign := _foreign(labels):
        return (_told(foreign),)
    gpus = None if CLAIM in annotations else _gpus(template.spec)
    workers = _Workers(annotations[RANKS], namespace, job.metadata.name, job.spec, template.spec, gpus, labels)
    why = _why_none(workers)
    return tuple(map(_told, [why] if why else _doubts(workers, behind)))


def _why_none(workers: _Workers) -> str:
    """Why pods get no ranks; empty if they get ranks."""
    spec = workers.spec
    if workers.mode not in MODES:
        return f"{workers.mode!r} is not one of {', '.join(MODES)}"
    if spec.completion_mode != "Indexed":
        return f"Job {workers.job} is not indexed, so its pods have no rank: completionMode: Indexed gives them one"
    at_once, total = 1 if spec.parallelism is None else spec.parallelism, spec.completions or 0
    if at_once < total:
        return f"Job {workers.job} runs {at_once} of its {total} pods at once: ranks would wait for the others for ever"
    if workers.mode == "gpus" and workers.gpus == 0:
        return f"the pods ask for no {GPU}, so they have no process for each"
    return ""


def _variables(workers: _Workers) -> list[EnvVar]:
    total = workers.spec.completions or 0
    leader = [literal(MASTER_ADDR, address)] if (address := _leader(workers)) else []
    leader.append(literal("MASTER_PORT", MASTER_PORT))
    node_rank = from_annotation("NODE_RANK", COMPLETION_INDEX)
    if workers.mode == "pods":
        sizes = {"WORLD_SIZE": total, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        return [from_annotation("RANK", COMPLETION_INDEX), node_rank, *_numbers(sizes), *leader]
    each = workers.gpus or 0
    sizes = {"NNODES": total, "NPROC_PER_NODE": each, "WORLD_SIZE": total * each}
    found = [node_rank, *_numbers(sizes), *leader]
    # torchrun reads its own arguments from variables with this prefix.
    return [*found, *(_renamed(variable) for variable in found if variable.name != "WORLD_SIZE")]


def _numbers(sizes: Mapping[str, int]) -> list[EnvVar]:
    return [literal(name, str(size)) for name, size in sizes.items()]


def _renamed(variable: EnvVar) -> EnvVar:
    return EnvVar(name=f"PET_{variable.name}", value=variable.value, value_from=variable.value_from)


def _leader(workers: _Workers) -> str:
    """The name of the pod with index 0; empty if the pod has no known name."""
    subdomain = workers.pod.subdomain
    return f"{workers.job}-0.{subdomain}.{workers.namespace}.svc" if subdomain else ""


def _doubts(workers: _Workers, behind: Behind) -> list[str]:
    """Why pods may not find the first pod; empty if the user has set the address in every container."""
    if all(any(env.name == MASTER_ADDR for env in each.env or ()) for each in workers.pod.containers or ()):
        return []
    name, service = workers.pod.subdomain, behind.service
    if not name:
        return [f"{MASTER_ADDR} is not set: spec.subdomain has to name a headless Service that selects the pods"]
    if service is None:
        missing = f"there is no Service {name}; {MASTER_ADDR} resolves once a headless one selects the pods"
        return [missing] if behind.is_service_known else []
    if service.spec.cluster_ip != "None":
        return [f"Service {name} is not headless (clusterIP: None), so {MASTER_ADDR} does not resolve"]
    selector = service.spec.selector or {}
    if not selector.items() <= workers.labels.items():
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
        return [f"Service {name} selects {wanted}, not the pods, so {MASTER_ADDR} does not resolve"]
    return []


def _gpus(spec: PodSpec) -> int | None:
    try:
        return requested(spec, whole_gpus)
    except (GanglineError, ValueError):
        return None  # not a number: the API server refuses the pod


def _foreign(labels: Mapping[str, str] | None) -> str:
    return next((why for label, why in _FOREIGN.items() if label in (labels or {})), "")


def _told(why: str) -> str:
    return f"{RANKS}: {why}"
