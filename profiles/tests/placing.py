"""A simulated cluster under one of the profiles that come with Gangline: manifests in, places out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gangline.config import SchedulerConfiguration, load
from gangline.simulate.session import simulate
from gangline_profiles import read

Manifest = dict[str, Any]
SPINE, LEAF = "topology.gangline.dev/spine", "topology.gangline.dev/leaf"


@cache
def loaded(profile: str) -> SchedulerConfiguration:
    """A profile that comes with Gangline."""
    return load(read(profile), profile)


def place(
    folder: Path, objects: Iterable[Manifest], profile: str = "gpu-scheduler", seconds: float = 60.0, seed: int = 1
) -> dict[str, str]:
    """Pod name to node, for the pods that have one after some virtual seconds."""
    file = folder / "objects.yaml"
    file.write_text("\n---\n".join(map(json.dumps, objects)))  # JSON is YAML too, and written in no time
    outcome = simulate([file], loaded(profile), seconds, seed)
    assert not outcome.warnings
    return {pod.removeprefix("default/"): use.name for use in outcome.nodes for pod in use.pods}


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None) -> Manifest:
    """A node."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    named = {"kubernetes.io/hostname": name, **(labels or {})}
    metadata = {"name": name, "labels": named}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": amounts}}


def report(name: str, gpus: int = 8) -> Manifest:
    """What the agent of a node says of its GPUs."""
    devices = [
        {"id": id, "health": "Healthy", "bandwidthGBps": 400, "island": "nvlink-0", "uuid": f"GPU-{name}-{id}"}
        for id in range(gpus)
    ]
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuNodeStatus",
        "metadata": {"name": name},
        "spec": {"nodeName": name},
        "status": {"total": gpus, "devices": devices},
    }


def spec(gpus: int = 0, profile: str = "gpu-scheduler", **more: Any) -> Manifest:
    """The spec of a pod with one container."""
    requests = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    resources = {"requests": requests, **({"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {})}
    return {"schedulerName": profile, "containers": [{"name": "main", "image": "x", "resources": resources}], **more}


def pod(name: str, made: Manifest, annotations: Mapping[str, str] | None = None, **labels: str) -> Manifest:
    """A pod on its own."""
    metadata = {"name": name, "namespace": "default", "annotations": dict(annotations or {}), "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}


def workload(
    kind: str, name: str, made: Manifest, annotations: Mapping[str, str] | None = None, of_pods: Any = None, **more: Any
) -> Manifest:
    """A Job or a Deployment; the annotations are its own, `of_pods` are those of its pods."""
    metadata = {"labels": {"app": name}, "annotations": dict(of_pods or {})}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations or {})},
        "spec": {**selector, **more, "template": {"metadata": metadata, "spec": made}},
    }
