"""A mixed workload: nodes of five pools, volumes and budgets, and pods with every kind of constraint.

It is made so that the outcome is the same whichever nodes a scheduler prefers. The pods of `early` all
fit. Those of `urgent` fit once the pods named `plain-` have gone. Those of `late` fit nowhere, each for a
reason of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gangline_e2e.volumes import claim, class_without_provisioner, disk, local_volume
from gangline_e2e.workloads import Manifest, gpu_pod, kwok_node, priority_class

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = ("a", "b", "c")
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
BUSY_TAINT = {"key": "dedicated", "value": "busy", "effect": "NoSchedule"}
ON_GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}
ON_BUSY = {"key": "dedicated", "operator": "Equal", "value": "busy", "effect": "NoSchedule"}
GUARDED = 8
"""Pods that a PodDisruptionBudget guards, all of them."""
BOUND_AT_ONCE = 7
"""Claims that are bound without any pod."""
BOUND_LATER = 10
"""Claims that are bound when their pods are."""


def nodes() -> Iterator[Manifest]:
    """60 nodes in three zones: 36 general, 12 with GPUs, 6 with local volumes, 4 that will be full, 2 cordoned."""
    for i in range(36):
        labels = {"pool": "general", ZONE: ZONES[i % 3], "example.com/disks": str(i % 4)}
        yield kwok_node(f"general-{i}", cpu="32" if i % 2 else "16", memory="64Gi", gpus=0, labels=labels)
    for i in range(12):
        yield kwok_node(f"gpu-{i}", labels={"pool": "gpu", ZONE: ZONES[i % 3]}, taints=[GPU_TAINT])
    for i in range(6):
        yield kwok_node(f"storage-{i}", cpu="16", gpus=0, labels={"pool": "storage", ZONE: ZONES[i % 3]})
    for i in range(4):
        labels = {"pool": "busy", "holds": "plain" if i % 2 else "guarded", ZONE: ZONES[i % 3]}
        yield kwok_node(f"busy-{i}", cpu="8", gpus=0, labels=labels, taints=[BUSY_TAINT])
    for i in range(2):
        node = kwok_node(f"cordoned-{i}", gpus=0, labels={"pool": "general", ZONE: ZONES[i % 3]})
        node["spec"]["unschedulable"] = True
        yield node


def objects(namespace: str) -> Iterator[Manifest]:
    """Storage classes, volumes, claims, priority classes and a budget; the claims go to ``namespace``."""
    yield class_without_provisioner("local", "WaitForFirstConsumer")
    yield class_without_provisioner("manual", "Immediate")
    for i in range(12):
        yield local_volume(f"local-{i}", f"storage-{i % 6}", "local")
    for i in range(10):
        yield claim(f"local-{i}", "local", "10Gi")
    yield claim("huge", "local", "1Ti")
    yield claim("unbound", "manual", "10Gi")
    for i in range(6):
        yield disk(f"zonal-{i}", f"{namespace}/zonal-{i}", {ZONE: ZONES[i % 3]})
        yield claim(f"zonal-{i}", "", "10Gi", volume=f"zonal-{i}")
    yield disk("once", f"{namespace}/once", {ZONE: "b"}, mode="ReadWriteOncePod")
    yield claim("once", "", "10Gi", volume="once", mode="ReadWriteOncePod")
    yield priority_class("urgent", 1000)
    yield priority_class("patient", 1000, preempts=False)
    yield priority_class("low", -10)
    yield {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded"},
        "spec": {"minAvailable": GUARDED, "selector": {"matchLabels": {"app": "guarded"}}},
    }


def early() -> Iterator[Manifest]:
    """Pods that all fit. Those near a cache come before the caches, and wait for them."""
    yield from _replicas("near", 24, spec=_affinity("podAffinity", _required_term("cache", ZONE)))
    yield from _replicas("cache", 3, spec={"topologySpreadConstraints": [_spread("cache", ZONE)]})
    evenly, rather = _spread("web", ZONE), _spread("web", HOST, hard=False)
    yield from _replicas("web", 48, cpu="500m", spec={"topologySpreadConstraints": [evenly, rather]})
    yield from _replicas("apart", 9, spec=_affinity("podAntiAffinity", _required_term("apart", HOST)))
    yield from _replicas("strangers", 6, spec=_affinity("podAntiAffinity", _required_term("apart", HOST)))
    yield from _replicas("roaming", 24, cpu="250m", spec=_affinity("podAntiAffinity", **_preferred_term("roaming")))
    yield from _replicas("disks", 12, spec=_node_affinity("example.com/disks", "Gt", "1"))
    yield from _replicas("elsewhere", 6, spec=_node_affinity("pool", "NotIn", "general", "gpu"))
    yield from _replicas("workers", 24, gpus=2, tolerations=[ON_GPU])
    yield from _replicas("alone", 12, tolerations=[ON_GPU], spec=_alone())
    yield from _replicas("gateway", 6, spec={**_on("storage"), **_port()})
    yield from _replicas("sparse", 3, tolerations=[ON_GPU], spec=_sparse())
    yield from (_with_claim("local", f"local-{i}", i) for i in range(10))
    yield from (_with_claim("zonal", f"zonal-{i}", i) for i in range(6))
    yield _with_claim("once", "once", 0)
    for app in ("guarded", "plain"):
        low = {"nodeSelector": {"holds": app}, "priorityClassName": "low"}
        slow = {"gangline.dev/ends-after": "3s"}
        yield from _replicas(app, GUARDED, cpu="2", tolerations=[ON_BUSY], annotations=slow, spec=low)


def urgent() -> Iterator[Manifest]:
    """Pods that each need the whole of a full node, and may preempt."""
    spec = {"nodeSelector": {"pool": "busy"}, "priorityClassName": "urgent"}
    yield from _replicas("urgent", 2, cpu="8", tolerations=[ON_BUSY], spec=spec)


def late() -> Iterator[Manifest]:
    """Pods that fit nowhere when everything else is bound."""
    busy = {"nodeSelector": {"pool": "busy"}}
    yield from _replicas("patient", 1, cpu="8", tolerations=[ON_BUSY], spec={**busy, "priorityClassName": "patient"})
    yield from _replicas("equal", 1, cpu="8", tolerations=[ON_BUSY], spec={**busy, "priorityClassName": "low"})
    yield from _replicas("intolerant", 1, spec=busy)
    yield from _replicas("alone", 2, start=12, tolerations=[ON_GPU], spec=_alone())
    yield from _replicas("gateway", 2, start=6, spec={**_on("storage"), **_port()})
    yield from _replicas("sparse", 2, start=3, tolerations=[ON_GPU], spec=_sparse())
    yield from _replicas("big", 1, cpu="500", memory="2Ti")
    yield from _replicas("devices", 1, gpus=9, tolerations=[ON_GPU])
    yield from _replicas("lonely", 1, spec=_affinity("podAffinity", _required_term("nobody", ZONE)))
    yield from _replicas("selective", 1, spec=_node_affinity("example.com/disks", "Gt", "3"))
    yield _with_claim("misplaced", "zonal-0", 0, nodeSelector={ZONE: "b"})
    yield _with_claim("once", "once", 1)
    yield _with_claim("huge", "huge", 0)
    yield _with_claim("unbound", "unbound", 0)
    yield _with_claim("missing", "missing", 0)
    yield from _replicas("gated", 1, spec={"schedulingGates": [{"name": "example.com/approval"}]})


def _replicas(app: str, count: int, *, start: int = 0, gpus: int = 0, **fields: Any) -> Iterator[Manifest]:
    for i in range(start, start + count):
        yield gpu_pod(f"{app}-{i}", gpus=gpus, labels={"app": app}, **fields)


def _with_claim(app: str, name: str, number: int, **spec: Any) -> Manifest:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    return gpu_pod(f"{app}-{number}", gpus=0, labels={"app": app}, spec={"volumes": [volume], **spec})


def _alone() -> Manifest:
    """One to a node of the GPU pool."""
    return {**_affinity("podAntiAffinity", _required_term("alone", HOST)), **_on("gpu")}


def _sparse() -> Manifest:
    """One to a zone of the GPU pool, since more zones are wanted than there are."""
    return {"topologySpreadConstraints": [{**_spread("sparse", ZONE), "minDomains": 5}], **_on("gpu")}


def _on(pool: str) -> Manifest:
    return {"nodeSelector": {"pool": pool}}


def _port() -> Manifest:
    container = gpu_pod("any", gpus=0)["spec"]["containers"][0]
    return {"containers": [{**container, "ports": [{"containerPort": 80, "hostPort": 8080}]}]}


def _spread(app: str, key: str, *, hard: bool = True) -> Manifest:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}},
    }


def _affinity(kind: str, *required: Manifest, **rules: Any) -> Manifest:
    if required:
        rules["requiredDuringSchedulingIgnoredDuringExecution"] = list(required)
    return {"affinity": {kind: rules}}


def _required_term(app: str, key: str) -> Manifest:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def _preferred_term(app: str) -> Mapping[str, Any]:
    weighted = {"weight": 100, "podAffinityTerm": _required_term(app, HOST)}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}


def _node_affinity(key: str, operator: str, *values: str) -> Manifest:
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
