"""Build manifests for tests and benchmarks: pure functions that return plain dicts.

A manifest without a namespace goes to the namespace of the client that creates it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]
Manifests = list[Manifest]

KWOK_NODE = "kwok.x-k8s.io/node"
GPU = "nvidia.com/gpu"
IMAGE = "registry.k8s.io/pause:3.10"


def kwok_node(
    name: str,
    *,
    cpu: str = "96",
    memory: str = "1Ti",
    gpus: int = 8,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> Manifest:
    """A node that kwok plays: Ready as soon as kwok has seen it, with these resources."""
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    if gpus:
        resources[GPU] = str(gpus)
    system = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**system, **(labels or {})},
            "annotations": {KWOK_NODE: "fake", **(annotations or {})},
        },
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {"capacity": dict(resources), "allocatable": dict(resources)},
    }


def gpu_pod(
    name: str,
    *,
    gpus: int = 1,
    cpu: str = "1",
    memory: str = "1Gi",
    scheduler_name: str = "default-scheduler",
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
    spec: Mapping[str, Any] | None = None,
) -> Manifest:
    """A pod with one container that asks for whole GPUs; ``spec`` replaces fields of its spec."""
    requests = {"cpu": cpu, "memory": memory}
    if gpus:
        requests[GPU] = str(gpus)
    metadata: Manifest = {
        "name": name,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    if namespace is not None:
        metadata["namespace"] = namespace
    resources: Manifest = {"requests": requests}
    if gpus:
        resources["limits"] = {GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler_name,
            "tolerations": [dict(toleration) for toleration in tolerations],
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": IMAGE, "resources": resources}],
            **(spec or {}),
        },
    }


def job(
    name: str,
    pod: Manifest,
    *,
    parallelism: int,
    completions: int | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """A Job whose pods are copies of ``pod``; it needs the controller manager to become pods."""
    template = {key: value for key, value in pod["metadata"].items() if key in ("labels", "annotations")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism if completions is None else completions,
            "template": {"metadata": template, "spec": {**pod["spec"], "restartPolicy": "Never"}},
        },
    }


def priority_class(name: str, value: int, *, preempts: bool = True) -> Manifest:
    """A PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
    }


def binding(pod: str, node: str, annotations: Mapping[str, str] | None = None) -> Manifest:
    """A Binding of a pod to a node; the API server copies its annotations to the pod."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "annotations": dict(annotations or {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


# Conditions on listed objects, to wait for


def is_ready(node: Manifest) -> bool:
    """Whether a node reports Ready."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_named(pod: Manifest, name: str) -> bool:
    """Whether it is the pod of this name."""
    return bool(pod["metadata"]["name"] == name)


def is_bound(pod: Manifest) -> bool:
    """Whether a pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def is_running(pod: Manifest) -> bool:
    """Whether a pod's phase is Running."""
    return bool(pod["status"].get("phase") == "Running")


def is_pod_ready(pod: Manifest) -> bool:
    """Whether a pod is ready to be talked to."""
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_succeeded(pod: Manifest) -> bool:
    """Whether a pod's phase is Succeeded."""
    return bool(pod["status"].get("phase") == "Succeeded")


def is_unschedulable(pod: Manifest) -> bool:
    """Whether a scheduler has said that it finds no node for a pod."""
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", []))


def cuda_devices(pod: Manifest) -> object:
    """What CUDA_VISIBLE_DEVICES of the first container is, or is read from; None if nothing was injected."""
    variables = pod["spec"]["containers"][0].get("env", [])
    found = (each for each in variables if each["name"] == "CUDA_VISIBLE_DEVICES")
    return next((each.get("value") or each.get("valueFrom") for each in found), None)
