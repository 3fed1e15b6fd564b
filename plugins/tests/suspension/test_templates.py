"""The pods that suspended workloads would create."""

from __future__ import annotations

from typing import Any

import msgspec

from gangline import resources
from gangline_plugins.suspension.owning import SuspendableOwner
from gangline_plugins.suspension.templates import MOST_PODS, WholeJob, WholeJobSet, pods_to_come

from ..default_preemption_cases import cluster, node

GPU = "nvidia.com/gpu"


def template(**spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "main:1", "resources": {"limits": {GPU: 8}}}
    return {
        "metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}},
        "spec": {"schedulerName": "gangs", "containers": [container], **spec},
    }


def a_job(**spec: Any) -> dict[str, Any]:
    sizes = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    return {"metadata": {"name": "j"}, "spec": {**sizes, "template": template(), **spec}}


def made(kind: Any, resource: Any, data: Any) -> Any:
    owner = SuspendableOwner(resource, "d", "j", "uid")
    return pods_to_come(cluster([node("a")], []).cache, owner, msgspec.convert(data, kind), 7)


def test_the_pods_of_a_job_are_as_its_controller_makes_them() -> None:
    pods = made(WholeJob, resources.JOBS, {**a_job(), "status": {"succeeded": 1}})

    assert [pod.name for pod in pods] == ["j-0", "j-1", "j-2"]
    assert all(pod.is_anew and pod.priority == 7 and pod.scheduler_name == "gangs" for pod in pods)
    assert pods[0].cls is pods[1].cls and pods[0].cls.requests.real[GPU] == 8
    assert pods[2].annotations["batch.kubernetes.io/job-completion-index"] == "2"
    assert pods[0].labels["app"] == "x" and pods[0].labels["job-name"] == "j" and pods[0].annotations["note"] == "y"
    assert pods[0].controller is not None and pods[0].controller.uid == "uid"


def test_claims_that_nobody_has_made_are_left_out() -> None:
    claims = [{"name": "own", "resourceClaimName": "there"}, {"name": "new", "resourceClaimTemplateName": "of"}]

    (pod, *_) = made(WholeJob, resources.JOBS, a_job(template=template(resourceClaims=claims)))

    assert [each.name for each in pod.spec.resource_claims] == ["own"]


def test_the_pods_of_a_job_set_say_which_part_they_are_of() -> None:
    jobs = [
        {"name": "driver", "replicas": 1, "template": a_job(parallelism=1, completions=1)},
        {"name": "workers", "replicas": 2, "template": a_job(parallelism=2, completions=2)},
    ]

    pods = made(WholeJobSet, resources.JOB_SETS, {"metadata": {"name": "j"}, "spec": {"replicatedJobs": jobs}})

    prefix = "jobset.sigs.k8s.io/"
    parts = [(pod.labels[f"{prefix}replicatedjob-name"], pod.labels[f"{prefix}job-index"], pod.name) for pod in pods]
    assert parts == [
        ("driver", "0", "j-driver-0-0"),
        ("workers", "0", "j-workers-0-0"),
        ("workers", "0", "j-workers-0-1"),
        ("workers", "1", "j-workers-1-0"),
        ("workers", "1", "j-workers-1-1"),
    ]
    assert {pod.labels[f"{prefix}jobset-name"] for pod in pods} == {"j"}
    assert len({pod.uid for pod in pods}) == 5


def test_a_workload_without_bounds_is_not_tried_out() -> None:
    huge = {"parallelism": 2**31 - 1, "completions": 2**31 - 1}
    jobs = [{"name": "a", "replicas": 2**31 - 1, "template": a_job(**huge)}]

    assert made(WholeJob, resources.JOBS, a_job(**huge)) == []
    assert made(WholeJobSet, resources.JOB_SETS, {"metadata": {}, "spec": {"replicatedJobs": jobs}}) == []
    empty = [{"name": "a", "replicas": 2**31 - 1, "template": a_job(parallelism=0)}]
    assert made(WholeJobSet, resources.JOB_SETS, {"metadata": {}, "spec": {"replicatedJobs": empty}}) == []
    assert MOST_PODS < 10_000
