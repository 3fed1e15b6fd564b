"""What the tests of GPU plugins share: nodes with their reports, claims, pods that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gangline import custom_resources, resources
from gangline.model import Node, ObjectMeta, Pod
from gangline.testing import Cache, cluster, make_node, make_pod
from gangline_plugins.gpu.links import LinkClass, LinkClasses
from gangline_plugins.gpu.named_hardware import devices


def links_of(hardware: str | list[custom_resources.GpuDevice]) -> LinkClass:
    """The link class of devices, or of those of a ready hardware."""
    return interned(LinkClasses(), devices(hardware) if isinstance(hardware, str) else hardware)


def interned(classes: LinkClasses, found: list[custom_resources.GpuDevice]) -> LinkClass:
    """The class of these devices among others."""
    made = classes.intern(found)
    assert made is not None
    return made


def report(
    node: str,
    hardware: str | list[custom_resources.GpuDevice] = "hgx-h100",
    health: Mapping[int, str] | None = None,
    heartbeat: str = "",
    fabric: custom_resources.Fabric | None = None,
) -> custom_resources.GpuNodeStatus:
    """The report of a node; `health` is by device id where it is not Healthy."""
    found = devices(hardware) if isinstance(hardware, str) else hardware
    found = [msgspec.structs.replace(d, health=(health or {}).get(d.id, d.health)) for d in found]
    status = custom_resources.GpuNodeStatusStatus(
        total=len(found), devices=found, heartbeat_time=heartbeat, fabric=fabric
    )
    return custom_resources.GpuNodeStatus(
        ObjectMeta(name=node, uid=f"gns-{node}"), custom_resources.GpuNodeStatusSpec(node), status
    )


def claim(
    name: str = "claim",
    network: custom_resources.ClaimNetwork | None = None,
    storage: custom_resources.ClaimStorage | None = None,
    selector: Mapping[str, str] | None = None,
    mode: Any = "Preferred",
    min_gbps: int = 0,
    namespace: str = "default",
    **of_devices: Any,
) -> custom_resources.GpuClaim:
    """A claim; `of_devices` are fields of `ClaimDevices`."""
    return custom_resources.GpuClaim(
        ObjectMeta(name=name, namespace=namespace, uid=f"claim-{name}"),
        custom_resources.GpuClaimSpec(
            devices=custom_resources.ClaimDevices(**of_devices),
            selector=custom_resources.ClaimSelector(dict(selector)) if selector else None,
            topology=custom_resources.ClaimTopology(mode, min_gbps),
            network=network,
            storage=storage,
        ),
    )


def claim_pod(name: str, uses: str = "claim", annotations: Mapping[str, str] | None = None, **fields: Any) -> Pod:
    """A pod that uses a claim."""
    return make_pod(name, annotations={custom_resources.CLAIM: uses, **(annotations or {})}, **fields)


def gpu_cluster(
    reports: Iterable[custom_resources.GpuNodeStatus] = (),
    claims: Iterable[custom_resources.GpuClaim] = (),
    pods: Iterable[Pod] = (),
    nodes: Iterable[Node] = (),
) -> Cache:
    """A cache of these reports, with a node of 8 GPUs for each that has none among `nodes`."""
    reports, nodes = list(reports), list(nodes)
    named = {node.metadata.name for node in nodes}
    nodes += [make_node(r.metadata.name, gpus=8) for r in reports if r.metadata.name not in named]
    cache = cluster(nodes)
    for each in reports:
        cache.store(resources.GPU_NODE_STATUSES).upsert(each)
    for each_claim in claims:
        cache.store(resources.GPU_CLAIMS).upsert(each_claim)
    for pod in pods:
        cache.upsert_pod(cache.record(pod))
    return cache
