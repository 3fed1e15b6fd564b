"""The words that the objects of a cluster share, so that odd ones are about each other and about the healthy ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from gangline.groups import keys
from gangline.wire import custom_resources as wire
from gangline_fuzz import edges
from gangline_fuzz.edges import Values

GPU = wire.GPU
PODS = ("p0", "p1", "p2", "p3")
NODES = ("n0", "n1", "n2")
ELSEWHERE = ("", "n9", "n0 ", "N0", "n0\u0000")
NAMESPACES = ("default", "team")
UIDS = ("uid-0", "uid-1", "uid-2", "")
SCHEDULERS = ("default-scheduler", "gpu-scheduler", "topology-aware-scheduler")
LEVELS = ("topology.gangline.dev/spine", "topology.gangline.dev/leaf", "topology.kubernetes.io/zone", "rack")
RESOURCE_NAMES = (
    "cpu", "memory", "pods", "ephemeral-storage", GPU, wire.SHARED_GPU, wire.MIG_PREFIX + "1g.10gb", "hugepages-2Mi",
    "example.com/thing", "rdma/hca", "nvidia.com/gpu-memory", "nvidia.com/gpu-cores", "", "a/b/c",
)  # fmt: skip

LABELS = ("app", "kubernetes.io/hostname", *LEVELS, wire.COMPLETION_INDEX, wire.POD_INDEX)
SAID = tuple(
    sorted(
        {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
        | {wire.CLAIM, wire.ALLOCATED, wire.ALLOCATED_UUIDS, wire.SCHEDULING_MAP, wire.NODE_ALIAS, wire.MANAGED}
        | {wire.LEASE_POD, wire.LEASE_POD_NAMESPACE, wire.LEASE_NODE, wire.COMPLETION_INDEX, wire.POD_INDEX}
        | {"gangline.dev/max-runtime", "gangline.dev/last-checkpoint", "gangline.dev/checkpoint-interval"}
        | {
            "gangline.dev/never-move",
            "gangline.dev/recovery",
            "gangline.dev/eviction",
            "gangline.dev/suspended-by",
            "gangline.dev/suspension",
            "topology.gangline.dev/network-gbps",
            "gpu.scheduling/holders",
            "gpu.scheduling/devices",
        }
        | {
            "topology.scheduler/placement-strategy",
            "topology.scheduler/latency-sensitive",
            "volume.kubernetes.io/selected-node",
        }
        | {
            "topology.scheduler/preferred-domain",
            "topology.scheduler/gpu-type",
            wire.RANKS,
            "pv.kubernetes.io/bind-completed",
            "volume.beta.kubernetes.io/storage-class",
        }
        | {"pv.kubernetes.io/bound-by-controller"}
    )
)
"""Labels and annotations that Gangline reads."""

_MAPS = ("0=n0:0,1", "0=n0:0\n1=n1:0", "0=n9:0", "0=n0:0,0", "=:", "0=n0:", "0=n0:-1", "-1=n0:0", "0=n0:99999999999")
_KOORDINATOR = (
    '{"gatherStrategy":[{"layer":"spine","strategy":"MustGather"}]}', '{"gatherStrategy":null}',
    '{"gatherStrategy":[7]}', '{"gatherStrategy":{"layer":[]}}',
)  # fmt: skip
_WORDS = (
    "g0", "g1", "c0", "c1", "p0", "n0", "true", "false", "0", "1", "2", "3", "8", "spine", "leaf", "rack,1m;any",
    "leaf,20s;spine,40s;any", "30m", "99999999h", "0,1", "0", "7", "-1", "GPU-0,GPU-1", "hard", "soft", *LEVELS, *_MAPS,
    *_KOORDINATOR,
)  # fmt: skip

values: Values = st.sampled_from(_WORDS) | edges.texts
some_labels: Values = st.dictionaries(st.sampled_from((*LABELS, *SAID)), values, max_size=4)
some_annotations: Values = st.dictionaries(st.sampled_from((*SAID, *SAID, "example.com/other")), values, max_size=4)
amounts: Values = st.dictionaries(st.sampled_from(RESOURCE_NAMES), edges.quantities, max_size=4)

HINTS: Mapping[str, Values] = {
    "name": st.sampled_from((*PODS, *NODES, "g0", "c0", "pvc0", "pv0", "", "x" * 300)),
    "namespace": st.sampled_from((*NAMESPACES, "", "nowhere")),
    "uid": st.sampled_from(UIDS),
    "node_name": st.sampled_from((*NODES, *ELSEWHERE)),
    "nominated_node_name": st.sampled_from((*NODES, *ELSEWHERE)),
    "scheduler_name": st.sampled_from((*SCHEDULERS, "other", "")),
    "labels": some_labels,
    "annotations": some_annotations,
    "match_labels": some_labels,
    "node_selector": some_labels,
    "selector": some_labels,
    "requests": amounts,
    "limits": amounts,
    "overhead": amounts,
    "allocatable": amounts,
    "capacity": amounts,
    "allocated_resources": amounts,
    "key": st.sampled_from((*LABELS, "node.kubernetes.io/unschedulable", "metadata.name", "")),
    "topology_key": st.sampled_from((*LABELS, "")),
    "operator": st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "", "in")),
    "effect": st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule", "", "Never")),
    "when_unsatisfiable": st.sampled_from(("DoNotSchedule", "ScheduleAnyway", "")),
    "phase": st.sampled_from(("", "Pending", "Running", "Succeeded", "Failed", "Bound", "Lost")),
    "kind": st.sampled_from(("Job", "ReplicaSet", "StatefulSet", "JobSet", "LeaderWorkerSet", "Pod", "NVLINK", "")),
    "api_version": st.sampled_from(("v1", "apps/v1", "batch/v1", "jobset.x-k8s.io/v1alpha2", "", "a/b/c")),
    "claim_name": st.sampled_from(("pvc0", "pvc1", "")),
    "volume_name": st.sampled_from(("pv0", "pv1", "")),
    "storage_class_name": st.sampled_from(("sc0", "sc1", "")),
    "pod_group_name": st.sampled_from(("g0", "g1", "")),
    "gang_ref": st.sampled_from(("g0", "g1", "")),
    "holder_identity": st.sampled_from(
        ("", "p0", "uid-0", "{}", '{"ids": [-1]}', '{"ids": [0], "pod": "default/p0"}', '{"ids": null}', "a/b/c/d")
    )
    | edges.texts,
}
"""By the name of a field in Python: what it is likely to hold."""


def base(field: str) -> Any:
    """What a field of this name is likely to hold, or None where nothing is known of it."""
    if field.endswith(("_time", "_timestamp")):
        return edges.times
    return HINTS.get(field)
