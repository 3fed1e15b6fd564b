"""How many GPUs each node has and how many are taken, in any of the ways in which pods get them.

A pod takes the GPUs that it requests. A pod that requests none takes the GPUs that a claim or a scheduling map gave it
(they are in its annotation) and those that dynamic resource allocation gave it (they are in its ResourceClaims). A
device that several pods share counts once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gangline.api.plugin import State
from gangline.dra.units import DRIVERS
from gangline.kube.resources import (
    DEVICE_CLASSES,
    GPU_CLAIMS,
    GPU_NODE_STATUSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from gangline.model import ResourceClaim, ResourceClaimSpec
from gangline.state.cache import Cache
from gangline.state.node_view import Int64Column, NodeView
from gangline.state.pods import PodClass, PodInfo
from gangline.wire import texts
from gangline.wire.custom_resources import ALLOCATED, AMD_GPU, CLAIM, GPU, GpuClaim

GPUS = (GPU, AMD_GPU)
"""Resources whose amounts are whole GPUs."""
_DEVICE = re.compile(r"gpu-(\d{1,3})(?:-mig-.*)?")
"""The name of a device that is a GPU, or a partition of a GPU (MIG)."""
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


def requested_gpus(pod: PodInfo) -> int:
    """The whole GPUs that a pod requests; 0 if its requests do not say how many GPUs it takes."""
    real = pod.cls.requests.real
    return sum(real.get(gpu, 0) for gpu in GPUS)


def asked_gpus(pod: PodInfo, cluster: State) -> int:
    """The GPUs that a waiting pod asks for: by its requests, or else by its GpuClaim, or else by its ResourceClaims.

    If a claim is not created yet, its template says the number, if the template is known. Shares of GPUs count as GPUs.
    """
    requested = requested_gpus(pod)
    if requested:
        return requested
    name = pod.annotations.get(CLAIM)
    claim: GpuClaim | None = cluster.store(GPU_CLAIMS).get(name, pod.namespace) if name else None
    if claim is not None:
        return max(0, claim.spec.devices.count)
    return sum(_asked(spec, cluster) for spec in _claimed_by(pod, cluster))


def _claimed_by(pod: PodInfo, cluster: State) -> Iterator[ResourceClaimSpec]:
    """What the claims of a pod ask for, as far as the claims or their templates are known."""
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or pod.claims.get(entry.name)
        claim: ResourceClaim | None = cluster.store(RESOURCE_CLAIMS).get(name, pod.namespace) if name else None
        template = entry.resource_claim_template_name
        if claim is not None:
            yield claim.spec
        elif template and (made := cluster.store(RESOURCE_CLAIM_TEMPLATES).get(template, pod.namespace)) is not None:
            yield made.spec.spec


def _asked(spec: ResourceClaimSpec, cluster: State) -> int:
    """The GPUs for which a ResourceClaim asks; of alternatives the first one counts, and `All` devices as one."""
    number = 0
    for request in spec.devices.requests:
        asked = request.exactly if request.exactly is not None else next(iter(request.first_available), None)
        if asked is not None and _is_of_gpus(asked.device_class_name, cluster):
            number += max(1, asked.count)
    return number


def _is_of_gpus(name: str, cluster: State) -> bool:
    """Whether a DeviceClass is meant for GPUs: by its name, or by the driver that its selectors name."""
    if name.startswith(DRIVERS) or name == DRIVERS.rstrip("."):
        return True
    found: Any = cluster.store(DEVICE_CLASSES).get(name)
    selectors = found.spec.selectors if found is not None else ()
    return any(f'"{DRIVERS}' in each.cel.expression or f"'{DRIVERS}" in each.cel.expression for each in selectors)


def _held(gathered: Gathered, rows: Mapping[str, int]) -> tuple[dict[int, set[int | str]], dict[int, set[int | str]]]:
    """For each row the devices: of pods that request GPUs, and of pods that do not."""
    by_request: dict[int, set[int | str]] = {}
    by_claim: dict[int, set[int | str]] = {}
    of_class: dict[PodClass, dict[int, set[int | str]]] = {}
    size = len(gathered.total)
    for pod in gathered.pods:
        if ALLOCATED not in pod.annotations or not 0 <= (row := pod.row) < size:
            continue
        where = of_class.get(pod.cls)
        if where is None:
            where = of_class[pod.cls] = by_request if requested_gpus(pod) else by_claim
        held = where.get(row)
        if held is None:
            held = where[row] = set()
        held.update(device_ids(pod.annotations))
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
