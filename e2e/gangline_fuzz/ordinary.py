"""Objects as they should be, of every kind that the scheduler reads: what odd ones are made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from gangline.groups import keys
from gangline.wire import custom_resources as wire
from gangline_fuzz.vocabulary import GPU, LEVELS, NAMESPACES, NODES, PODS, SCHEDULERS, UIDS

Data = dict[str, Any]
Draw = st.DrawFn

ORIGIN = "2025-12-31T23:00:00Z"
"""An hour before virtual time starts."""


def one_of(draw: Draw, *values: Any) -> Any:
    """One of these, the first more often than others when an example is made smaller."""
    return draw(st.sampled_from(values))


def _metadata(draw: Draw, *names: str, namespaced: bool = True) -> Data:
    found: Data = {"name": one_of(draw, *names), "uid": one_of(draw, *UIDS), "creationTimestamp": ORIGIN}
    if namespaced:
        found["namespace"] = one_of(draw, *NAMESPACES)
    return found


# Pods and nodes


def pod(draw: Draw) -> Data:
    """A pod of any scheduler, bound or not, of a gang or not."""
    metadata = _metadata(draw, *PODS)
    uid = f"uid-{metadata['namespace']}-{metadata['name']}"
    metadata["uid"] = one_of(draw, uid, uid, uid, uid, uid, f"{uid}-again", UIDS[0])
    metadata["labels"], metadata["annotations"] = _belongs(draw)
    metadata["annotations"] |= _devices(draw)
    if one_of(draw, False, False, True):
        metadata["ownerReferences"] = [_owner(draw)]
    requests = {"cpu": one_of(draw, "1", "100m"), GPU: one_of(draw, "1", "2", "8", "0")}
    spec: Data = {
        "schedulerName": one_of(draw, *SCHEDULERS),
        "containers": [{"name": "main", "image": "main:1", "resources": {"requests": requests}}],
        "priority": one_of(draw, 0, 0, 1000),
    }
    if one_of(draw, False, False, True):
        spec["nodeName"] = one_of(draw, *NODES, "n9")
    if one_of(draw, False, True):
        spec["volumes"] = [_volume(draw)]
    spec |= one_of(draw, *CONSTRAINTS)
    return {"metadata": metadata, "spec": spec, "status": {"phase": one_of(draw, "Pending", "Running", "Succeeded")}}


_SELECTOR = {"matchLabels": {"app": "a"}}
_TERM = {"topologyKey": "rack", "labelSelector": _SELECTOR}
_EXPRESSION = {"key": "rack", "operator": "In", "values": ["a"]}
CONSTRAINTS: tuple[Data, ...] = (
    {},
    {"nodeSelector": {"rack": "a"}},
    {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [_EXPRESSION]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [_EXPRESSION]}}
        ],
    }}},
    {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}}},
    {"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [_TERM],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _TERM}],
    }}},
    {"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _SELECTOR}
    ]},
    {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    {"initContainers": [{"name": "first", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]},
    {"overhead": {"cpu": "1"}, "resources": {"requests": {"cpu": "4"}}},
    {"schedulingGates": [{"name": "later"}]},
    {"schedulingGroup": {"podGroupName": "g0"}},
    {"hostNetwork": True},
    {"priorityClassName": "system-node-critical", "preemptionPolicy": "Never"},
)  # fmt: skip


def _belongs(draw: Draw) -> tuple[Data, Data]:
    """Labels and annotations of a gang in one of the dialects, or of none."""
    group = one_of(draw, "g0", "g1")
    index = str(draw(st.integers(0, 3)))
    rank = {wire.COMPLETION_INDEX: index}
    dialects: tuple[tuple[Data, Data], ...] = (
        ({"app": "a"}, {}),
        ({"app": "b"}, rank),
        ({keys.POD_GROUP: group}, {keys.TOPOLOGY_REQUIRED: one_of(draw, "leaf", "spine")}),
        ({keys.POD_GROUP: group}, {keys.TOPOLOGY_FALLBACK: "leaf,20s;spine,40s;any"}),
        ({}, {keys.GANG: "true", keys.MIN_MEMBER: "2", keys.MIN_RUNTIME: "1m"}),
        ({}, {keys.GPU_COUNT: "4"}),
        ({keys.KUEUE_GROUP: group}, {keys.KUEUE_TOTAL_COUNT: "2", keys.KUEUE_REQUIRED: LEVELS[1]}),
        ({}, {keys.KAI_GROUP: group, keys.KAI_SEGMENT_SIZE: "2", keys.KAI_SEGMENT_REQUIRED: LEVELS[1]}),
        ({keys.KAI_SUBGROUP: "a"}, {keys.KAI_GROUP: group, keys.KAI_MIN_MEMBER: "2"}),
        ({}, {keys.VOLCANO_GROUP: group, keys.VOLCANO_TASK: "worker", keys.VOLCANO_MODE: "hard"}),
        ({}, {keys.KOORDINATOR_GROUP: group, keys.KOORDINATOR_MIN_AVAILABLE: "2", keys.KOORDINATOR_TOTAL: "2"}),
        ({keys.JOB_SET: group, keys.JOB_SET_PART: "a"}, {keys.JOB_SET: group, keys.JOB_SET_EXCLUSIVE: LEVELS[1]}),
        (
            {keys.LWS_NAME: group, keys.LWS_GROUP: "k", keys.LWS_GROUP_INDEX: "0", keys.LWS_WORKER: index},
            {keys.LWS_SIZE: "4", keys.LWS_SUBGROUP_SIZE: "2"},
        ),
    )
    labels, annotations = one_of(draw, *dialects)
    return dict(labels), dict(annotations)


def _devices(draw: Draw) -> Data:
    node = one_of(draw, *NODES)
    said: tuple[Data, ...] = (
        {},
        {wire.CLAIM: one_of(draw, "c0", "c1")},
        {wire.ALLOCATED: "0,1", wire.ALLOCATED_UUIDS: f"GPU-{node}-0,GPU-{node}-1"},
        {wire.SCHEDULING_MAP: f"0={node}:0,1", wire.COMPLETION_INDEX: "0"},
        {"gangline.dev/max-runtime": "1h", "gangline.dev/last-checkpoint": ORIGIN},
    )
    return dict(one_of(draw, *said))


def _owner(draw: Draw) -> Data:
    kind = one_of(draw, "Job", "ReplicaSet", "StatefulSet", "JobSet", "LeaderWorkerSet")
    versions = {
        "Job": "batch/v1",
        "JobSet": "jobset.x-k8s.io/v1alpha2",
        "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    }
    name = one_of(draw, "g0", "g1")
    return {
        "kind": kind,
        "apiVersion": versions.get(kind, "apps/v1"),
        "name": name,
        "uid": f"{kind}-{name}",
        "controller": True,
    }


def _volume(draw: Draw) -> Data:
    return {"name": "data"} | one_of(
        draw,
        {"persistentVolumeClaim": {"claimName": "pvc0"}},
        {"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}},
        {"gcePersistentDisk": {"pdName": "disk"}},
        {"azureDisk": {"diskName": "disk", "diskURI": "/a/b"}},
        {"iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2026-01.a", "lun": 0}},
        {"rbd": {"monitors": ["a"], "image": "b", "pool": "c"}},
        {"csi": {"driver": "driver"}},
        {"image": {"reference": "main:1"}},
        {"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "sc0"}}}},
    )


def node(draw: Draw) -> Data:
    """One of the nodes that are there, or another."""
    metadata = _metadata(draw, *NODES, "n9", namespaced=False)
    name = metadata["name"]
    metadata["uid"] = f"uid-{name}"
    metadata["labels"] = {"kubernetes.io/hostname": name, "rack": "a", LEVELS[0]: "s0", LEVELS[1]: "l0"}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: one_of(draw, "8", "4")}
    image = {"names": ["main:1"], "sizeBytes": 700 * 2**20}
    return {
        "metadata": metadata,
        "spec": one_of(draw, {}, {"unschedulable": True}, {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}),
        "status": {"allocatable": amounts, "capacity": amounts, "images": [image]},
    }


# Devices


def gpu_node_status(draw: Draw) -> Data:
    """What an agent reports."""
    metadata = _metadata(draw, *NODES, "n9", namespaced=False)
    return {"metadata": metadata, "spec": {"nodeName": metadata["name"]}, "status": reported(metadata["name"])}


def reported(node: str, devices: int = 8) -> Data:
    """The status of healthy GPUs in two islands, with two adapters."""
    return {
        "total": devices,
        "devices": [
            {
                "id": number,
                "uuid": f"GPU-{node}-{number}",
                "model": "H100",
                "memoryMiB": 81559,
                "health": "Healthy",
                "bandwidthGBps": 900,
                "island": f"i{number // 4}",
                "numaNode": number // 4,
                "links": [
                    {"peer": peer, "kind": "NVLINK", "bandwidthGBps": 900} for peer in range(devices) if peer != number
                ],
            }
            for number in range(devices)
        ],
        "fabric": {
            "clique": "a.1",
            "hcas": [{"name": f"mlx5_{n}", "ports": 1, "linkGbps": 400, "state": "Active"} for n in (0, 1)],
        },
        "driverVersion": "570",
        "heartbeatTime": "2026-01-01T00:00:00Z",
    }


def gpu_claim(draw: Draw) -> Data:
    """A claim of a few devices."""
    devices: Data = {"count": one_of(draw, 1, 2, 4), "exclusivity": one_of(draw, "Exclusive", "Shared")}
    if devices["exclusivity"] == "Shared":
        devices["fraction"] = 0.5
    topology = {"mode": one_of(draw, "Preferred", "Required"), "minBandwidthGBps": 400}
    return {"metadata": _metadata(draw, "c0", "c1"), "spec": {"devices": devices, "topology": topology, "gangRef": ""}}


def lease(draw: Draw) -> Data:
    """A lock on devices of a node."""
    name = one_of(draw, *NODES)
    uid = one_of(draw, "uid-p0", "uid-p1", "uid-gone")
    hold = {"pod": "default/p0", "by": "other.1", "ids": one_of(draw, [0], [1], [0, 1], [-1], [64], [2**70])}
    return {
        "metadata": {
            "name": one_of(draw, f"gpu-{name}-0", f"gpu-{name}-1", "gpu-scheduler"),
            "namespace": "kube-system",
            "uid": "uid-lease",
            "labels": {wire.MANAGED: "true", wire.LEASE_NODE: name},
            "annotations": {"gpu.scheduling/holders": json.dumps({uid: hold}), wire.LEASE_NODE: name},
        },
        "spec": {
            "holderIdentity": one_of(draw, uid, "default/p0", "other"),
            "leaseDurationSeconds": 30,
            "renewTime": ORIGIN,
        },
    }


# Groups and owners


def pod_group(draw: Draw) -> Data:
    """A group of scheduler-plugins, of KAI, of Volcano or of Kubernetes: each reads its own fields."""
    spec = {
        "minMember": one_of(draw, 1, 2, 4),
        "minTaskMember": {"worker": 2},
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1, "parent": "a"}],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        "schedulingConstraints": {"topology": [{"key": LEVELS[1]}]},
    }
    chosen = draw(st.lists(st.sampled_from(sorted(spec)), min_size=1, max_size=3, unique=True))
    return {"metadata": _metadata(draw, "g0", "g1"), "spec": {name: spec[name] for name in chosen}}


def workload(draw: Draw) -> Data:
    """A Job, ReplicaSet, StatefulSet, JobSet or LeaderWorkerSet: each reads its own fields."""
    metadata = _metadata(draw, "g0", "g1")
    template = {"metadata": {"annotations": {keys.TOPOLOGY_REQUIRED: "leaf"}}}
    job = {"parallelism": 2, "completions": 2, "template": template}
    metadata["annotations"] = {keys.GANG: one_of(draw, "true", "false")}
    spec = {
        "selector": _SELECTOR,
        "replicas": 2,
        **job,
        "completionMode": "Indexed",
        "replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": job}}],
        "leaderWorkerTemplate": {"size": 4, "workerTemplate": template},
    }
    return {"metadata": metadata, "spec": spec}


# Everything else


def volume_claim(draw: Draw) -> Data:
    """A claim of a volume."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "sc0"}
    return {"metadata": _metadata(draw, "pvc0", "pvc1"), "spec": spec | one_of(draw, {}, {"volumeName": "pv0"})}


def volume(draw: Draw) -> Data:
    """A volume in one zone."""
    term = {"matchExpressions": [{"key": LEVELS[2], "operator": "In", "values": ["a"]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "sc0",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"metadata": _metadata(draw, "pv0", "pv1", namespaced=False), "spec": spec, "status": {"phase": "Available"}}


def storage_class(draw: Draw) -> Data:
    """A storage class."""
    mode = one_of(draw, "WaitForFirstConsumer", "Immediate")
    return {
        "metadata": _metadata(draw, "sc0", "sc1", namespaced=False),
        "provisioner": "driver",
        "volumeBindingMode": mode,
    }


def budget(draw: Draw) -> Data:
    """A disruption budget."""
    spec = {"selector": _SELECTOR, "minAvailable": one_of(draw, 1, "50%")}
    return {"metadata": _metadata(draw, "b0"), "spec": spec, "status": {"disruptionsAllowed": 1}}


def domain(draw: Draw) -> Data:
    """A leaf or a spine."""
    spec = {"type": one_of(draw, "leaf", "spine"), "nodeSelector": {"rack": "a"}, "networkBandwidth": 400}
    return {
        "metadata": _metadata(draw, "l0", "s0"),
        "spec": spec,
        "apiVersion": "topology.scheduler/v1alpha1",
        "kind": "DomainConfig",
    }


def anything(draw: Draw) -> Data:
    """An object of which little is known but its metadata."""
    return {"metadata": _metadata(draw, "g0", "sc0", *NODES, *NAMESPACES), "spec": {"selector": {"app": "a"}}}


KINDS: Mapping[str, tuple[Callable[[Draw], Data], int]] = {
    "pods": (pod, 24),
    "nodes": (node, 8),
    "gpunodestatuses": (gpu_node_status, 5),
    "gpuclaims": (gpu_claim, 3),
    "leases": (lease, 4),
    "podgroups.v1alpha1.scheduling.x-k8s.io": (pod_group, 2),
    "podgroups.v1beta1.scheduling.k8s.io": (pod_group, 2),
    "podgroups.v1alpha2.scheduling.k8s.io": (pod_group, 1),
    "podgroups.v2alpha2.scheduling.run.ai": (pod_group, 2),
    "podgroups.v1beta1.scheduling.volcano.sh": (pod_group, 2),
    "jobs": (workload, 2),
    "replicasets": (workload, 1),
    "statefulsets": (workload, 1),
    "jobsets": (workload, 2),
    "leaderworkersets": (workload, 2),
    "persistentvolumeclaims": (volume_claim, 2),
    "persistentvolumes": (volume, 2),
    "storageclasses": (storage_class, 1),
    "poddisruptionbudgets": (budget, 2),
    "domainconfigs": (domain, 3),
    "schedulerconfigs": (anything, 2),
    "topologyschedulerconfigs": (anything, 2),
    "namespaces": (anything, 1),
    "services": (anything, 1),
    "replicationcontrollers": (anything, 1),
    "csinodes": (anything, 1),
    "csidrivers": (anything, 1),
    "csistoragecapacities": (anything, 1),
    "volumeattachments": (anything, 1),
    "deployments": (anything, 1),
    "cronjobs": (anything, 1),
}
"""By the key of the resource: how such an object is made, and how often."""
