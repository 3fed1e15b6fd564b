"""What becomes of the other members by default: who has made the pods decides, in whatever dialect the gang is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gangline import model, resources
from gangline.testing import make_pod

from .recovery_cases import LossStory, gpu_container

SIZE = 3
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SET, LWS, KUEUE = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io", "kueue.x-k8s.io"
NOBODYS = {"spec": {"schedulerName": "another", "containers": [gpu_container(8)]}}
PART = {"parallelism": SIZE, "completions": SIZE, "completionMode": "Indexed", "template": NOBODYS}
MPI = resources.Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob", model.Job)
LABELS_OF_JOB_SET = {
    f"{JOB_SET}/jobset-name": "train",
    f"{JOB_SET}/replicatedjob-name": "w",
    f"{JOB_SET}/job-index": "0",
}
A_JOB_SET = (resources.JOB_SETS, {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": PART}}]})
A_GROUP = (resources.SCHEDULER_PLUGINS_POD_GROUPS, {"minMember": SIZE})


@dataclass(frozen=True, slots=True)
class Dialect:
    """Pods of a gang of three named train, and the objects behind them."""

    owner: resources.Resource[Any]
    """Of what kind the controller of the pods is."""
    objects: tuple[tuple[resources.Resource[Any], dict[str, Any]], ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    numbered: str = ""
    """The label, or annotation, that numbers the pods."""
    above: resources.Resource[Any] | None = None
    """Of what kind the controller of the controller is."""
    group: str = ""
    """The object of the pods' schedulingGroup."""


RESTART = {
    "JobSet": Dialect(resources.JOBS, (A_JOB_SET,), LABELS_OF_JOB_SET, numbered=INDEX, above=resources.JOB_SETS),
    "LeaderWorkerSet": Dialect(
        resources.STATEFUL_SETS,
        ((resources.LEADER_WORKER_SETS, {"leaderWorkerTemplate": {"size": SIZE}}),),
        {f"{LWS}/name": "train", f"{LWS}/group-key": "k", f"{LWS}/group-index": "0"},
        numbered=f"{LWS}/worker-index",
        above=resources.LEADER_WORKER_SETS,
    ),
    "MPIJob": Dialect(MPI, (A_GROUP,), {"scheduling.x-k8s.io/pod-group": "train"}),
    "launcher of an MPIJob": Dialect(resources.JOBS, (A_GROUP,), {"scheduling.x-k8s.io/pod-group": "train"}, above=MPI),
    "JobSet that Kueue admits": Dialect(
        resources.JOBS,
        (A_JOB_SET,),
        {**LABELS_OF_JOB_SET, f"{KUEUE}/pod-group-name": "train"},
        {f"{KUEUE}/pod-group-total-count": str(SIZE)},
        above=resources.JOB_SETS,
    ),
    "JobSet in a group of Volcano": Dialect(
        resources.JOBS,
        (A_JOB_SET, (resources.VOLCANO_POD_GROUPS, {"minMember": SIZE})),
        LABELS_OF_JOB_SET,
        {"scheduling.k8s.io/group-name": "train"},
        above=resources.JOB_SETS,
    ),
}
REPLACE = {
    "indexed Job": Dialect(resources.JOBS, (), numbered=INDEX),
    "PodGroup of scheduler-plugins": Dialect(resources.JOBS, (A_GROUP,), {"scheduling.x-k8s.io/pod-group": "train"}),
    "PodGroup of Kubernetes": Dialect(
        resources.JOBS,
        ((resources.POD_GROUPS_V1BETA1, {"schedulingPolicy": {"gang": {"minCount": SIZE}}}),),
        group="train",
    ),
    "Volcano": Dialect(
        resources.JOBS,
        ((resources.VOLCANO_POD_GROUPS, {"minMember": SIZE}),),
        annotations={"scheduling.k8s.io/group-name": "train"},
    ),
    "Kueue": Dialect(
        resources.JOBS, (), {f"{KUEUE}/pod-group-name": "train"}, {f"{KUEUE}/pod-group-total-count": str(SIZE)}
    ),
}


def add(cluster: LossStory, dialect: Dialect) -> None:
    """The gang, with its owners."""
    for kind, spec in dialect.objects:
        meta = {"name": "train", "namespace": "default"}
        cluster.server.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec})
    above = [] if dialect.above is None else [reference(dialect.above)]
    controller = reference(dialect.owner)
    if dialect.owner is resources.JOBS:
        of_job: dict[str, Any] = {"name": "train", "namespace": "default", "ownerReferences": above}
        made = cluster.server.create(resources.JOBS, {"metadata": of_job, "spec": PART})
        controller = {**controller, "uid": made.data["metadata"]["uid"]}
    for number in range(SIZE):
        numbered = {dialect.numbered: str(number)} if dialect.numbered else {}
        pod = make_pod(
            f"train-{number}",
            gpus=8,
            labels={**dialect.labels, **numbered},
            annotations={**dialect.annotations, **numbered},
            scheduler_name="gangs",
        )
        if dialect.group:
            pod.spec.scheduling_group = model.SchedulingGroup(dialect.group)
        pod.metadata.owner_references = [model.OwnerReference(**of_model(controller))]
        cluster.create(resources.PODS, pod)


def reference(kind: resources.Resource[Any]) -> dict[str, Any]:
    """Of the object train of a kind."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": "train", "uid": "u-1", "controller": True}


def of_model(reference: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the struct."""
    return {"api_version": reference["apiVersion"], **{k: v for k, v in reference.items() if k != "apiVersion"}}


@pytest.mark.parametrize("dialect", REPLACE.values(), ids=REPLACE.keys())
def test_the_other_members_run_on(dialect: Dialect) -> None:
    assert left_of(dialect) == SIZE - 1


@pytest.mark.parametrize("dialect", RESTART.values(), ids=RESTART.keys())
def test_all_members_restart(dialect: Dialect) -> None:
    assert left_of(dialect) == 0


def left_of(dialect: Dialect) -> int:
    """How many members of a gang run on after one was lost."""
    cluster = LossStory()

    async def story() -> int:
        add(cluster, dialect)
        await cluster.runs("train", SIZE)
        cluster.fail(cluster.node_of("train", 1))
        await cluster.until(lambda: bool(cluster.told_as("GangRecovering")), 15.0)
        await cluster.until(lambda: len(cluster.bound("train")) < SIZE, 15.0)
        await cluster.told("restart" if dialect in RESTART.values() else "room is kept", 15.0)
        return len(cluster.uids("train"))

    return cluster.play(story)
