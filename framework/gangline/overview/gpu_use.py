"""How many GPUs each node has and how many are taken, in any of the ways in which pods get them.

A pod takes the GPUs that it requests. A pod that requests none takes the GPUs that a claim or a scheduling map gave it
(they are in its annotation) and those that dynamic resource allocation gave it (they are in its ResourceClaims). A
device that several pods share counts once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gangline.api.plugin import State
from gangline.dra.units import DRIVERS
from gangline.kube.resources import GPU_NODE_STATUSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.state.cache import Cache
from gangline.state.node_view import Int64Column, NodeView
from gangline.state.pods import PodInfo
from gangline.wire import texts
from gangline.wire.custom_resources import ALLOCATED, AMD_GPU, GPU

GPUS = (GPU, AMD_GPU)
"""Resources whose amounts are whole GPUs."""
_DEVICE = re.compile(r"gpu-(\d{1,3})(?:-mig-.*)?")
"""The device of a GPU, or of a part of it."""
_MOST_IDS = 256


@dataclass(frozen=True, slots=True, eq=False)
class GpuUse:
    """One value for each row of the nodes."""

    total: Int64Column
    used: Int64Column
    ids: Mapping[int, frozenset[int]]
    """For each row the ids of the taken devices, as far as they are known."""


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The input for counting: copies, and lists of objects that never change, so that another thread may count."""

    total: Int64Column
    requested: Int64Column
    names: Sequence[str]
    pods: Sequence[PodInfo]
    claims: Sequence[Any]
    reports: Sequence[Any]
    slices: Sequence[Any]


def gather(nodes: NodeView, cluster: State) -> Gathered:
    """Collect the input from all nodes as they are now; quick, and called by the thread that owns the columns."""
    total, requested = nodes.amounts(GPUS)
    claims: Any = cluster.store(RESOURCE_CLAIMS)
    reports: Any = cluster.store(GPU_NODE_STATUSES)
    slices: Any = cluster.store(RESOURCE_SLICES)
    pods = list(cluster.pods.values())
    amounts = total.sum(axis=0), requested.sum(axis=0)
    return Gathered(*amounts, nodes.names, pods, list(claims), list(reports), list(slices))


def gpu_use(cluster: Cache) -> GpuUse:
    """Count in the cluster as it is now; looks at every pod."""
    return counted(gather(cluster.nodes.view(), cluster))


def counted(gathered: Gathered) -> GpuUse:
    """The number of GPUs of each node, and the number of taken ones."""
    rows = {name: row for row, name in enumerate(gathered.names) if name}
    total, used = gathered.total, gathered.requested.copy()
    reported = _reported(gathered, rows)
    by_request, by_claim = _held(gathered, rows)
    pieces = np.maximum(1, np.where(reported > 0, total // np.maximum(reported, 1), 1))
    total = np.where(total > 0, total, reported)
    for row, held in by_claim.items():  # few pods have GPUs without requesting them
        used[row] += len(held - by_request.get(row, frozenset())) * pieces[row]
    ids = {
        row: frozenset(id for id in by_claim.get(row, set()) | by_request.get(row, set()) if isinstance(id, int))
        for row in {**by_claim, **by_request}
    }
    return GpuUse(np.maximum(total, used * (total == 0)), np.where(total > 0, np.minimum(used, total), used), ids)


def device_ids(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """The device ids in the annotations of a bound pod; invalid ones are left out."""
    return texts.device_ids(annotations.get(ALLOCATED, ""))


def asks_for_gpus(pod: PodInfo) -> bool:
    """Whether the pod's requests say how many GPUs it takes."""
    real = pod.cls.requests.real
    return bool(real.get(GPU) or real.get(AMD_GPU))


def _held(gathered: Gathered, rows: Mapping[str, int]) -> tuple[dict[int, set[int | str]], dict[int, set[int | str]]]:
    """For each row the devices: of pods that request GPUs, and of pods that do not."""
    by_request: dict[int, set[int | str]] = {}
    by_claim: dict[int, set[int | str]] = {}
    for pod in gathered.pods:
        row = pod.row
        if 0 <= row < len(gathered.total) and ALLOCATED in pod.annotations:
            where = by_request if asks_for_gpus(pod) else by_claim
            where.setdefault(row, set()).update(device_ids(pod.annotations))
    for claim in gathered.claims:
        for result in claim.status.results:
            row = rows.get(result.pool, -1)
            if row >= 0 and result.driver.startswith(DRIVERS) and not result.admin_access:
                number = _DEVICE.fullmatch(result.device)
                by_claim.setdefault(row, set()).add(int(number[1]) if number else result.device)
    return by_request, by_claim


def _reported(gathered: Gathered, rows: Mapping[str, int]) -> Int64Column:
    """Devices that agents report or drivers offer in ResourceSlices, for nodes without a device plugin."""
    found = np.zeros(len(gathered.total), dtype=np.int64)
    for report in gathered.reports:
        row = rows.get(report.metadata.name, -1)
        if row >= 0:
            found[row] = min(len(report.status.devices), _MOST_IDS)
    offered: dict[int, set[str]] = {}
    for each in gathered.slices:
        row = rows.get(each.spec.node_name, -1)
        if row >= 0 and each.spec.driver.startswith(DRIVERS):
            numbers = (_DEVICE.fullmatch(device.name) for device in each.spec.devices[:_MOST_IDS])
            offered.setdefault(row, set()).update(number[1] for number in numbers if number)
    for row, ids in offered.items():
        found[row] = max(int(found[row]), min(len(ids), _MOST_IDS))
    return found
