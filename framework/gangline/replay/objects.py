"""The objects of a cluster for a trace: nodes with reports of their GPUs, claims for parts of GPUs, and pods.

A pod asks for a part of a GPU by a GpuClaim, which only profiles with the plugin GpuClaim read. With other profiles the
pod requests whole GPUs instead: as many as the GPUs of which it would have parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gangline import model
from gangline.groups.keys import KOORDINATOR_GROUP, KOORDINATOR_MIN_AVAILABLE
from gangline.kube.resources import GPU_CLAIMS, GPU_NODE_STATUSES
from gangline.replay.trace import WHOLE, TraceJob, TraceNode
from gangline.state.cache import Cache
from gangline.wire.custom_resources import (
    CLAIM,
    GPU,
    ClaimDevices,
    GpuClaim,
    GpuClaimSpec,
    GpuDevice,
    GpuNodeStatus,
    GpuNodeStatusSpec,
    GpuNodeStatusStatus,
)

NAMESPACE = "default"
PRODUCT = "nvidia.com/gpu.product"
"""The label with the model of the GPUs of a node."""
_MOST_PODS_OF_A_NODE = 10_000


def fill(cache: Cache, nodes: Iterable[TraceNode], jobs: Iterable[TraceJob], reports: bool = True) -> None:
    """Put the nodes into the cache, with `reports` also a report for each node, and a GpuClaim for each part of a GPU
    that some job wants.
    """
    for node in nodes:
        cache.upsert_node(node_of(node))
        if reports and node.gpus:
            cache.store(GPU_NODE_STATUSES).upsert(_report(node))
    for count, milli in sorted({(job.gpus, job.milli) for job in jobs if job.is_part}):
        devices = ClaimDevices(count=count, exclusivity="Shared", fraction=milli / WHOLE)
        metadata = model.ObjectMeta(name=_claim_name(count, milli), namespace=NAMESPACE)
        cache.store(GPU_CLAIMS).upsert(GpuClaim(metadata, GpuClaimSpec(devices=devices)))


def node_of(node: TraceNode) -> model.Node:
    """The Node."""
    amounts: model.Resources = {"cpu": f"{node.cpu}m", "memory": f"{node.memory}Mi", "pods": _MOST_PODS_OF_A_NODE}
    if node.gpus:
        amounts[GPU] = node.gpus
    labels = {PRODUCT: node.model} if node.model else {}
    return model.Node(
        metadata=model.ObjectMeta(name=node.name, labels=labels), status=model.NodeStatus(allocatable=amounts)
    )


def _report(node: TraceNode) -> GpuNodeStatus:
    devices = [
        GpuDevice(id=id, uuid=f"{node.name}-{id}", model=node.model, health="Healthy") for id in range(node.gpus)
    ]
    status = GpuNodeStatusStatus(total=node.gpus, devices=devices)
    return GpuNodeStatus(model.ObjectMeta(name=node.name), GpuNodeStatusSpec(node.name), status)


def pods_of(
    job: TraceJob, name: str, scheduler_name: str, parts: bool = True, created: str | None = None
) -> Iterator[model.Pod]:
    """The pods of a job. Names begin with `name`, and are also the UIDs. Without `parts` pods request whole GPUs."""
    annotations = {KOORDINATOR_GROUP: name, KOORDINATOR_MIN_AVAILABLE: f"{job.pods}"} if job.pods > 1 else {}
    requests: model.Resources = {}
    if job.cpu:
        requests["cpu"] = f"{job.cpu}m"
    if job.memory:
        requests["memory"] = f"{job.memory}Mi"
    if job.is_part and parts:
        annotations[CLAIM] = _claim_name(job.gpus, job.milli)
    elif job.gpus:
        requests[GPU] = job.gpus
    container = model.Container(name="main", resources=model.ResourceRequirements(requests=requests))
    spec = model.PodSpec(
        scheduler_name=scheduler_name, containers=[container], affinity=_affinity(job.models), priority=job.priority
    )
    for number in range(job.pods):
        pod_name = f"{name}-{number}"
        metadata = model.ObjectMeta(name=pod_name, namespace=NAMESPACE, uid=pod_name, annotations=annotations)
        metadata.creation_timestamp = created
        yield model.Pod(metadata=metadata, spec=spec)


def _claim_name(count: int, milli: int) -> str:
    return f"part-{count}-{milli}"


def _affinity(models: Sequence[str]) -> model.Affinity | None:
    if not models:
        return None
    term = model.NodeSelectorTerm(
        match_expressions=[model.Requirement(key=PRODUCT, operator="In", values=list(models))]
    )
    return model.Affinity(node_affinity=model.NodeAffinity(required=model.NodeSelector(node_selector_terms=[term])))
