"""Makes manifests of many like GPU nodes, for simulations, tests and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

GPU = "nvidia.com/gpu"
NONE: Mapping[str, Any] = MappingProxyType({})


def gpu_nodes(
    count: int,
    *,
    gpus: int = 8,
    cpu: str = "128",
    memory: str = "1Ti",
    prefix: str = "gpu",
    labels: Mapping[str, str] = NONE,
    domains: Mapping[str, int] = NONE,
) -> list[dict[str, Any]]:
    """Node manifests ``PREFIX-00000`` and on.

    ``domains`` maps a label to the number of neighbouring nodes that share a value: with
    ``{"example.com/spine": 64, "example.com/leaf": 8}`` node 70 is in ``spine-1`` and ``leaf-8``.
    """
    capacity = {"cpu": cpu, "memory": memory, "pods": "110"} | ({GPU: str(gpus)} if gpus else {})
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{prefix}-{number:05}",
                "labels": {
                    "kubernetes.io/hostname": f"{prefix}-{number:05}",
                    **labels,
                    **{label: f"{label.rpartition('/')[2]}-{number // size}" for label, size in domains.items()},
                },
            },
            "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
        }
        for number in range(count)
    ]
