"""Gangs whose pods controllers make, and make anew when they are lost: these are the gangs that recovery acts on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gangline.simulate.workloads import OWNERS
from gangline_e2e import gangs
from gangline_e2e.gangs import GANG, INDEX, Dialect, Gang, Rule
from gangline_e2e.workloads import Manifest, Manifests

RECOVERY = "gangline.dev/recovery"
_PREFIX = "jobset.sigs.k8s.io/"
_BACKOFF_LIMIT = 10_000
"""The backoffLimit of Jobs: faults end more pods than a Job allows by default."""


def replica_set(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """A ReplicaSet whose pods are members of a PodGroup: lost members are replaced."""
    made = gangs.scheduler_plugins(name, size, rule, gpus)
    pod = made.pods[0]
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    spec = {"replicas": size, "selector": {"matchLabels": {GANG: name}}, "template": template}
    return replace(made, objects=[*made.objects, _object("apps/v1", "ReplicaSet", name, spec)], pods=[])


def restarted_set(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """The same, but all members start anew when one is lost."""
    made = replica_set(name, size, rule, gpus)
    for owner in owners(made.objects):
        owner["metadata"]["annotations"] = {RECOVERY: "restart"}
    return made


def indexed_job(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """A Job that runs all its indices at once."""
    made = gangs.indexed_job(name, size, rule, gpus)
    for owner in owners(made.objects):
        owner["spec"]["backoffLimit"] = _BACKOFF_LIMIT
    return made


def job_set(name: str, size: int, rule: Rule, gpus: int) -> Gang:
    """A JobSet and its Jobs: all members start anew when one is lost."""
    made = gangs.job_set(name, size, rule, gpus)
    pods: defaultdict[str, Manifests] = defaultdict(list)
    for pod in made.pods:
        labels = pod["metadata"]["labels"]
        pods[f"{name}-{labels[f'{_PREFIX}replicatedjob-name']}-{labels[f'{_PREFIX}job-index']}"].append(pod)
    jobs = [_job(job, found) for job, found in pods.items()]
    return replace(made, objects=[*made.objects, *jobs], pods=[])


DIALECTS: tuple[Dialect, ...] = (replica_set, restarted_set, indexed_job, job_set)


def owners(objects: Iterable[Manifest]) -> Manifests:
    """Those of the objects that make pods."""
    return [each for each in objects if (each["apiVersion"], each["kind"]) in OWNERS]


def path_of(owner: Manifest, namespace: str) -> str:
    """Where an owner is."""
    plural = OWNERS[owner["apiVersion"], owner["kind"]].plural
    return f"/apis/{owner['apiVersion']}/namespaces/{namespace}/{plural}/{owner['metadata']['name']}"


def _job(name: str, pods: Manifests) -> Manifest:
    labels = {key: value for key, value in pods[0]["metadata"]["labels"].items() if key != INDEX}
    template = {"metadata": {"labels": labels}, "spec": {**pods[0]["spec"], "restartPolicy": "Never"}}
    size: dict[str, Any] = {"parallelism": len(pods), "completions": len(pods), "completionMode": "Indexed"}
    return _object("batch/v1", "Job", name, {**size, "backoffLimit": _BACKOFF_LIMIT, "template": template})


def _object(api_version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
