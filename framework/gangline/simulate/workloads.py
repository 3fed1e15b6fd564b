"""Decides which pods a job, replica set, deployment or stateful set lacks.

All pods of a stateful set are made at once, whatever its podManagementPolicy says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gangline import model
from gangline.kube.resources import CRON_JOBS, JOB_SETS, JOBS, LEADER_WORKER_SETS, REPLICA_SETS, STATEFUL_SETS, Resource
from gangline.simulate.history import Data

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", model.ReplicaSet)
FINISHED = ("Succeeded", "Failed")
BACKOFF_LIMIT = 6  # failed pods that a job allows
INDEX = "batch.kubernetes.io/job-completion-index"

OWNERS: dict[tuple[str, str], Resource[Any]] = {
    (each.api_version, each.kind): each for each in (JOBS, REPLICA_SETS, STATEFUL_SETS, DEPLOYMENTS)
}

UNMADE: tuple[Resource[Any], ...] = (CRON_JOBS, JOB_SETS, LEADER_WORKER_SETS)
"""Workloads that define groups, but for which a simulation creates no pods."""


def missing(owner: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> list[Data]:
    """Manifests of the missing pods of a workload, given its existing pods; for a deployment the missing replica set.

    The manifests are whole objects as JSON data; for owners of other kinds there are none.
    """
    kind = owner["kind"]
    if kind == "Job":
        return _job_pods(owner, pods)
    if kind == "ReplicaSet":
        lacking = _number(owner, "replicas") - sum(not is_over(pod) for pod in pods)
        generated = {"generateName": f"{owner['metadata']['name']}-"}
        return [_pod(owner, generated) for _ in range(lacking)]
    if kind == "StatefulSet":
        there = {pod["metadata"]["name"] for pod in pods}
        numbers = range(_number(owner, "replicas"))
        return [_ordinal_pod(owner, n) for n in numbers if f"{owner['metadata']['name']}-{n}" not in there]
    return [_replica_set(owner)] if kind == "Deployment" else []


def _job_pods(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> list[Data]:
    spec = job["spec"]
    parallelism = _number(job, "parallelism")
    completions = spec.get("completions", parallelism)
    succeeded = [pod for pod in pods if pod.get("status", {}).get("phase") == "Succeeded"]
    active = [pod for pod in pods if not is_over(pod)]
    lacking = min(parallelism, completions - len(succeeded)) - len(active)
    failed = sum(pod.get("status", {}).get("phase") == "Failed" for pod in pods)
    given_up = failed > spec.get("backoffLimit", BACKOFF_LIMIT)
    if spec.get("suspend") or given_up or lacking <= 0 or (succeeded and "completions" not in spec):
        return []
    name = job["metadata"]["name"]
    if spec.get("completionMode") != "Indexed":
        return [_job_pod(job, {"generateName": f"{name}-"}) for _ in range(lacking)]
    taken = {pod["metadata"].get("annotations", {}).get(INDEX) for pod in (*succeeded, *active)}
    free = [index for index in range(completions) if str(index) not in taken]
    return [_indexed_pod(job, index) for index in free[:lacking]]


def _indexed_pod(job: Mapping[str, Any], index: int) -> Data:
    name, mark = job["metadata"]["name"], {INDEX: str(index)}
    pod = _job_pod(job, {"generateName": f"{name}-{index}-"}, labels=mark, annotations=mark)
    return {**pod, "spec": {"hostname": f"{name}-{index}", **pod["spec"]}}


def _job_pod(
    job: Mapping[str, Any],
    named: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Data:
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    of_job = {
        "batch.kubernetes.io/job-name": name,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "controller-uid": uid,
    }
    return _pod(job, named, of_job | dict(labels or {}), annotations)


def _ordinal_pod(owner: Mapping[str, Any], number: int) -> Data:
    name = f"{owner['metadata']['name']}-{number}"
    labels = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(number)}
    pod = _pod(owner, {"name": name}, labels)
    return {**pod, "spec": {"hostname": name, **pod["spec"]}}


def _replica_set(deployment: Mapping[str, Any]) -> Data:
    """The replica set of a deployment; the hash in its name distinguishes it from replica sets of other templates."""
    spec = deployment["spec"]
    text = msgspec.json.encode(spec["template"], order="deterministic")
    mark = {"pod-template-hash": hashlib.sha256(text).hexdigest()[:10]}
    template = spec["template"]
    metadata = template.get("metadata", {})
    labelled = {**template, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **mark}}}
    selector = spec.get("selector", {})
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{deployment['metadata']['name']}-{mark['pod-template-hash']}",
            "namespace": deployment["metadata"]["namespace"],
            "labels": labelled["metadata"]["labels"],
            "ownerReferences": [reference_of(deployment)],
        },
        "spec": {
            "replicas": _number(deployment, "replicas"),
            "selector": {**selector, "matchLabels": {**selector.get("matchLabels", {}), **mark}},
            "template": labelled,
        },
    }


def _pod(
    owner: Mapping[str, Any],
    named: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Data:
    """A pod from the owner's template, with more labels and annotations."""
    template = owner["spec"]["template"]
    metadata = template.get("metadata", {})
    more = {
        field: {**metadata.get(field, {}), **(extra or {})}
        for field, extra in (("labels", labels), ("annotations", annotations))
        if metadata.get(field) or extra
    }
    own = {"namespace": owner["metadata"]["namespace"], "ownerReferences": [reference_of(owner)]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **more, **named, **own},
        "spec": template.get("spec", {}),
    }


def reference_of(owner: Mapping[str, Any]) -> Data:
    """The owner reference of the objects that a workload creates."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference to the owner that would create the object again, or None."""
    references: Iterable[Mapping[str, Any]] = data["metadata"].get("ownerReferences", [])
    return next((each for each in references if each.get("controller")), None)


def has_template(owner: Mapping[str, Any]) -> bool:
    """Whether the template of the pods of a workload is known; a workload from a snapshot has none."""
    return "template" in owner.get("spec", {})


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether a pod no longer counts for its owner."""
    return "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") in FINISHED


def _number(owner: Mapping[str, Any], field: str) -> int:
    number: int = owner["spec"].get(field, 1)
    return number
