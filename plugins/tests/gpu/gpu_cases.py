"""What the tests of GPU plugins share: nodes with their reports, claims, pods that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gangline.kube.resources import GPU_CLAIMS, GPU_NODE_STATUSES
from gangline.model import Node, ObjectMeta, Pod
from gangline.state.cache import Cache
from gangline.testing import cluster, make_node, make_pod
from gangline.wire.custom_resources import (
    CLAIM,
    ClaimDevices,
    ClaimNetwork,
    ClaimSelector,
    ClaimStorage,
    ClaimTopology,
    Fabric,
    GpuClaim,
    GpuClaimSpec,
    GpuDevice,
    GpuNodeStatus,
    GpuNodeStatusSpec,
    GpuNodeStatusStatus,
)
from gangline_plugins.gpu.links import LinkClass, LinkClasses
from gangline_plugins.gpu.named_hardware import devices


def links_of(hardware: str | list[GpuDevice]) -> LinkClass:
    """The link class of devices, or of those of a ready hardware."""
    return interned(LinkClasses(), devices(hardware) if isinstance(hardware, str) else hardware)


def interned(classes: LinkClasses, found: list[GpuDevice]) -> LinkClass:
    """The class of these devices among others."""
    made = classes.intern(found)
    assert made is not None
    return made


def report(
    node: str,
    hardware: str | list[GpuDevice] = "hgx-h100",
    health: Mapping[int, str] | None = None,
    heartbeat: str = "",
    fabric: Fabric | None = None,
) -> GpuNodeStatus:
    """The report of a node; `health` is by device id where it is not Healthy."""
    found = devices(hardware) if isinstance(hardware, str) else hardware
    found = [msgspec.structs.replace(d, health=(health or {}).get(d.id, d.health)) for d in found]
    status = GpuNodeStatusStatus(total=len(found), devices=found, heartbeat_time=heartbeat, fabric=fabric)
    return GpuNodeStatus(ObjectMeta(name=node, uid=f"gns-{node}"), GpuNodeStatusSpec(node), status)


def claim(
    name: str = "claim",
    network: ClaimNetwork | None = None,
    storage: ClaimStorage | None = None,
    selector: Mapping[str, str] | None = None,
    mode: Any = "Preferred",
    min_gbps: int = 0,
    namespace: str = "default",
    **of_devices: Any,
) -> GpuClaim:
    """A claim; `of_devices` are fields of `ClaimDevices`."""
    return GpuClaim(
        ObjectMeta(name=name, namespace=namespace, uid=f"claim-{name}"),
        GpuClaimSpec(
            devices=ClaimDevices(**of_devices),
            selector=ClaimSelector(dict(selector)) if selector else None,
            topology=ClaimTopology(mode, min_gbps),
            network=network,
            storage=storage,
        ),
    )


def claim_pod(name: str, uses: str = "claim", annotations: Mapping[str, str] | None = None, **fields: Any) -> Pod:
    """A pod that uses a claim."""
    return make_pod(name, annotations={CLAIM: uses, **(annotations or {})}, **fields)


def gpu_cluster(
    reports: Iterable[GpuNodeStatus] = (),
    claims: Iterable[GpuClaim] = (),
    pods: Iterable[Pod] = (),
    nodes: Iterable[Node] = (),
) -> Cache:
    """A cache of these reports, with a node of 8 GPUs for each that has none among `nodes`."""
    reports, nodes = list(reports), list(nodes)
    named = {node.metadata.name for node in nodes}
    nodes += [make_node(r.metadata.name, gpus=8) for r in reports if r.metadata.name not in named]
    cache = cluster(nodes)
    for each in reports:
        cache.store(GPU_NODE_STATUSES).upsert(each)
    for each_claim in claims:
        cache.store(GPU_CLAIMS).upsert(each_claim)
    for pod in pods:
        cache.upsert_pod(cache.record(pod))
    return cache
