"""Pods with ResourceClaims under the profiles for GPUs: partitions and whole GPUs are packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .placing import Manifest, node, place

DRIVER = "gpu.example.com"
PROFILES = ("gpu-scheduler", "topology-aware-scheduler")
API = "resource.k8s.io/v1"


def device_class(name: str) -> Manifest:
    """Devices of one kind."""
    selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "{name}"'}}]
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}}


def template(kind: str, count: int) -> Manifest:
    """A claim for so many devices of a kind."""
    request = {"deviceClassName": kind, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"{kind}-{count}", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}},
    }


def slice_of(name: str, part: str, **content: Any) -> Manifest:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, **content}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{name}-{part}"}, "spec": spec}


def offering(name: str, gpus: int = 4) -> list[Manifest]:
    """A node whose GPUs a driver offers whole and in halves."""
    counters = [{"name": f"gpu-{gpu}", "counters": {"memory": {"value": "80Gi"}}} for gpu in range(gpus)]
    devices = [
        {
            "name": f"gpu-{gpu}-{kind}-{number}",
            "attributes": {"kind": {"string": kind}},
            "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {"memory": {"value": amount}}}],
        }
        for gpu in range(gpus)
        for kind, amount, numbers in (("whole", "80Gi", 1), ("half", "40Gi", 2))
        for number in range(numbers)
    ]
    return [
        node(name, gpus=0),
        slice_of(name, "counters", sharedCounters=counters),
        slice_of(name, "d", devices=devices),
    ]


def pods(number: int, kind: str, count: int, profile: str) -> list[Manifest]:
    """Pods with a claim each."""
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "4", "memory": "8Gi"}}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": f"{kind}-{count}"}]
    spec = {"schedulerName": profile, "containers": [container], "resourceClaims": claims}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{kind}-{at}", "namespace": "default"},
            "spec": spec,
        }
        for at in range(number)
    ]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("number", "kind", "count"), [(8, "half", 1), (2, "whole", 2), (4, "whole", 1)])
def test_claims_fill_one_node_before_another(tmp_path: Path, profile: str, number: int, kind: str, count: int) -> None:
    cluster = [each for name in ("a", "b", "c") for each in offering(name)]

    found = place(
        tmp_path, [*cluster, device_class(kind), template(kind, count), *pods(number, kind, count, profile)], profile
    )

    assert len(found) == number
    assert len(set(found.values())) == 1
