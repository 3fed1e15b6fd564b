"""How many GPUs each node has and how many are taken, in any of the ways in which pods get them.

A pod takes the GPUs that it requests. A pod that requests none takes the GPUs that a claim or a scheduling map gave it
(they are in its annotation) and those that dynamic resource allocation gave it (they are in its ResourceClaims). A
device that several pods share counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from gangline.api.plugin import State
from gangline.dra.units import DRIVERS
from gangline.kube.resources import DEVICE_CLASSES, GPU_CLAIMS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from gangline.model import ResourceClaim, ResourceClaimSpec
from gangline.overview.gpu_counts import GPUS as GPUS
from gangline.overview.gpu_counts import GpuCounts
from gangline.overview.gpu_counts import device_ids as device_ids
from gangline.overview.gpu_counts import requested_gpus as requested_gpus
from gangline.state.cache import Cache
from gangline.state.node_view import Int64Column, NodeView
from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import CLAIM, GpuClaim

SLICE = 256
"""Nodes whose pods one step of `catch_up` looks at, in one to ten milliseconds."""


class GpuUse(msgspec.Struct, frozen=True, eq=False):
    """One value for each row of the nodes."""

    total: Int64Column
    used: Int64Column
    ids: Mapping[int, frozenset[int]] = msgspec.field(default_factory=dict)
    """For each row the ids of the taken devices, as far as they are known; empty if only the numbers were counted."""


class Gathered(msgspec.Struct, frozen=True, eq=False):
    """The input for counting, one value for each row: copies, so that another thread may count."""

    total: Int64Column
    requested: Int64Column
    beyond: Int64Column
    reported: Int64Column


def gather(nodes: NodeView, cluster: State) -> Gathered:
    """Collect the input from all nodes as they are now; called by the thread that owns the columns.

    This is quick, because only what has changed since the last call is looked at; the first call looks at every pod,
    unless `catch_up` has done so.
    """
    counts = _up_to_date(nodes, cluster)
    total, requested = nodes.amounts(GPUS)
    return Gathered(total.sum(axis=0), requested.sum(axis=0), counts.beyond.copy(), counts.reported.copy())


def catch_up(cluster: Cache, most: int = SLICE) -> Iterator[None]:
    """Look at what has changed since the last call, a slice of the nodes at each step, so that `gather` is quick then.

    The caller lets other tasks run between two steps. If they change more nodes than a step looks at, the steps end all
    the same: when twice as many nodes were looked at as there are.
    """
    for _ in range(0, 2 * cluster.nodes.size, most):
        if cluster.shared(GpuCounts, cluster).update(cluster.nodes.view(), most):
            return
        yield


def gpu_use(cluster: Cache) -> GpuUse:
    """Count in the cluster as it is now, with the ids of the devices; looks at every pod."""
    nodes = cluster.nodes.view()
    return replace(counted(gather(nodes, cluster)), ids=_up_to_date(nodes, cluster).ids(nodes))


def counted(gathered: Gathered) -> GpuUse:
    """The number of GPUs of each node, and the number of taken ones; without ids."""
    total, reported = gathered.total, gathered.reported
    pieces = np.maximum(1, np.where(reported > 0, total // np.maximum(reported, 1), 1))
    used = gathered.requested + gathered.beyond * pieces
    total = np.where(total > 0, total, reported)
    return GpuUse(np.maximum(total, used * (total == 0)), np.where(total > 0, np.minimum(used, total), used))


def _up_to_date(nodes: NodeView, cluster: State) -> GpuCounts:
    counts = cluster.shared(GpuCounts, cluster)
    counts.update(nodes)
    return counts


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
