"""The objects of a very large cluster as the API server writes them: JSON in bytes.

Nodes have 8 GPUs and the conditions of a kubelet; pods ask for CPU and memory, and every fifth for a GPU. All have
managedFields, which are a large part of what a real API server sends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gangline_e2e.workloads import GPU

PER_LEAF, PER_ZONE = 32, 2048
NAMESPACES = 50
NODE_MILLI, POD_MILLI = 96_000, 1_000
"""The CPU of a node, and of a pod that runs."""
CREATED = "2026-01-01T00:00:00Z"
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
"""The paths of the lists."""


def node(number: int, version: int = 1, beat: int = 0) -> bytes:
    """A node; `beat` is the value of a label that changes."""
    name = f"node-{number:06}"
    room = {"cpu": f"{NODE_MILLI}m", "memory": "1Ti", "pods": "110", GPU: "8", "ephemeral-storage": "3500Gi"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number // PER_ZONE}",
        "topology.kubernetes.io/rack": f"rack-{number // PER_LEAF}",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "example.com/beat": str(beat),
    }
    conditions = [
        {
            "type": each,
            "status": str(each == "Ready"),
            "reason": f"KubeletHas{each}",
            "message": f"kubelet reports {each}",
            "lastHeartbeatTime": CREATED,
            "lastTransitionTime": CREATED,
        }
        for each in _CONDITIONS
    ]
    return _written(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": _metadata(name, "", f"n-{number}", version, labels),
            "spec": {"providerID": f"metal://{name}"},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": conditions,
                "addresses": [
                    {"type": "InternalIP", "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}
                ],
                "nodeInfo": {"kubeletVersion": "v1.36.2", "osImage": "Debian GNU/Linux 12", "architecture": "amd64"},
            },
        }
    )


def pod(
    number: int,
    on: str = "",
    version: int = 1,
    cpu_milli: int = POD_MILLI,
    gpus: int = 0,
    status: Mapping[str, Any] = MappingProxyType({}),
) -> bytes:
    """A pod on a node, or one that waits; `cpu_milli` makes the class, and `status` is added to its status."""
    name, namespace = f"pod-{number:07}", f"team-{number % NAMESPACES}"
    amounts = {"cpu": f"{cpu_milli}m", "memory": "2Gi"} | ({GPU: str(gpus)} if gpus else {})
    container = {
        "name": "main",
        "image": "registry.example.com/train:1",
        "resources": {"requests": amounts, "limits": amounts},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    spec = {
        "schedulerName": "gangline",
        "containers": [container],
        "restartPolicy": "Never",
        "serviceAccountName": "default",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
    }
    if on:
        spec["nodeName"] = on
    metadata = _metadata(name, namespace, f"p-{number}", version, {"app": f"app-{number % 1000}"})
    whole = {"phase": "Running" if on else "Pending", "qosClass": "Guaranteed", **status}
    return _written({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": whole})


def _metadata(name: str, namespace: str, uid: str, version: int, labels: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        f"f:{key}": {} for key in ("name", "labels", "annotations", "spec", "status", "resources", "image")
    }
    managed = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": CREATED,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": fields, "f:spec": fields},
        }
        for manager in ("kube-controller-manager", "kubelet")
    ]
    found: dict[str, Any] = {
        "name": name,
        "uid": uid,
        "resourceVersion": str(version),
        "creationTimestamp": CREATED,
        "labels": labels,
        "managedFields": managed,
    }
    return found | ({"namespace": namespace} if namespace else {})


def _written(thing: dict[str, Any]) -> bytes:
    return json.dumps(thing, separators=(",", ":")).encode()
