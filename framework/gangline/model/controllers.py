"""Workloads of operators (JobSet, LeaderWorkerSet), and objects of which only the metadata is read."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta


class PartialObjectMetadata(Object):
    """An object of any kind, of which the API server sends the metadata alone."""

    metadata: ObjectMeta


class PodTemplate(Object):
    """The template of pods; only its annotations are read."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class JobTemplateSpec(Object):
    """spec of the jobs that a job set makes."""

    parallelism: int | None = None
    completions: int | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class JobTemplate(Object):
    """The template of the jobs of a job set."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: JobTemplateSpec = msgspec.field(default_factory=JobTemplateSpec)


class JobDependency(Object):
    """A replicated job that has to be created first."""

    name: str = ""
    status: str = ""


class ReplicatedJob(Object):
    """A part of a job set: a number of equal jobs."""

    name: str = ""
    replicas: int = 1
    template: JobTemplate = msgspec.field(default_factory=JobTemplate)
    depends_on: list[JobDependency] = []


class JobSetStartup(Object):
    """The order in which the replicated jobs are created."""

    startup_policy_order: str = ""


class JobSetSpec(Object):
    """spec of a job set."""

    replicated_jobs: list[ReplicatedJob] = []
    startup_policy: JobSetStartup | None = None
    suspend: bool | None = None


class ReplicatedJobStatus(Object):
    """The progress of one replicated job."""

    name: str = ""
    succeeded: int = 0


class JobSetStatus(Object):
    """status of a job set."""

    replicated_jobs_status: list[ReplicatedJobStatus] = []


class JobSet(Object):
    """Jobs that belong together (jobset.x-k8s.io)."""

    metadata: ObjectMeta
    spec: JobSetSpec = msgspec.field(default_factory=JobSetSpec)
    status: JobSetStatus = msgspec.field(default_factory=JobSetStatus)


class LeaderWorkerTemplate(Object):
    """One replica of a leader-worker set."""

    size: int = 1
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class LeaderWorkerSetSpec(Object):
    """spec of a leader-worker set."""

    leader_worker_template: LeaderWorkerTemplate = msgspec.field(default_factory=LeaderWorkerTemplate)
    startup_policy: str = ""


class LeaderWorkerSet(Object):
    """Replicas of a leader with its workers (leaderworkerset.x-k8s.io)."""

    metadata: ObjectMeta
    spec: LeaderWorkerSetSpec = msgspec.field(default_factory=LeaderWorkerSetSpec)
