"""The defaults that an API server (for nodes: the kubelet) sets at creation, as far as scheduling depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.clock import rfc3339
from gangline.simulate.history import Data

DEFAULT_GRACE = 30  # seconds
_COUNTED = "ExactCount"
DEFAULT_PODS = 110  # pods per node, what a kubelet registers unless told otherwise


def default_pod(pod: Data, priority_class: Mapping[str, Any] | None, now: float) -> Data:
    """The pod with its defaults. `priority_class` is the class that the pod names, or the cluster's default class."""
    spec = {
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": DEFAULT_GRACE,
        **pod.get("spec", {}),
    }
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_container(each, bool(spec.get("hostNetwork"))) for each in spec[field]]
    if "resources" in spec:
        spec["resources"] = _resources(spec["resources"])
    spec |= _priority(spec, priority_class)
    return {**pod, "spec": spec, "status": _pod_status(spec, pod.get("status", {}), now)}


def default_node(node: Data) -> Data:
    """The node with its defaults: allocatable equals capacity, room for pods, and the label kubernetes.io/hostname."""
    status = dict(node.get("status", {}))
    given = status.get("capacity") or status.get("allocatable") or {}
    capacity = {"pods": str(DEFAULT_PODS), **given}
    status |= {"capacity": capacity, "allocatable": {"pods": capacity["pods"], **status.get("allocatable", capacity)}}
    metadata = dict(node["metadata"])
    metadata["labels"] = {"kubernetes.io/hostname": metadata["name"], **metadata.get("labels", {})}
    return {**node, "metadata": metadata, "status": status}


def default_claim(claim: Data) -> Data:
    """The ResourceClaim with its defaults: each request asks for a number of devices, one unless it says how many."""
    return {**claim, "spec": _claim_spec(claim["spec"])} if claim.get("spec") else claim


def default_claim_template(template: Data) -> Data:
    """The ResourceClaimTemplate with the defaults of its claims."""
    made = template.get("spec") or {}
    if not made.get("spec"):
        return template
    return {**template, "spec": {**made, "spec": _claim_spec(made["spec"])}}


def _claim_spec(spec: Mapping[str, Any]) -> Data:
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return dict(spec)
    return {**spec, "devices": {**devices, "requests": [_request(each) for each in devices["requests"]]}}


def _request(request: Mapping[str, Any]) -> Data:
    result = dict(request)
    if result.get("exactly") is not None:
        result["exactly"] = _counted(result["exactly"])
    if result.get("firstAvailable"):
        result["firstAvailable"] = [_counted(each) for each in result["firstAvailable"]]
    return result


def _counted(asked: Mapping[str, Any]) -> Data:
    mode = asked.get("allocationMode") or _COUNTED
    return {**asked, "allocationMode": mode, **({"count": asked.get("count") or 1} if mode == _COUNTED else {})}


def with_condition(status: Mapping[str, Any], condition: Mapping[str, Any], now: float) -> Data:
    """The status with the condition of that type set; its transition time moves when its status does."""
    others = [each for each in status.get("conditions", []) if each["type"] != condition["type"]]
    old = next((each for each in status.get("conditions", []) if each["type"] == condition["type"]), None)
    changed = old is None or old["status"] != condition["status"]
    since = rfc3339(now) if changed or old is None else old.get("lastTransitionTime")
    return {**status, "conditions": [*others, {"lastTransitionTime": since, **condition}]}


def _container(container: Mapping[str, Any], host_network: bool) -> Data:
    result = dict(container)
    if "resources" in result:
        result["resources"] = _resources(result["resources"])
    if "ports" in result:
        result["ports"] = [_port(each, host_network) for each in result["ports"]]
    return result


def _port(port: Mapping[str, Any], host_network: bool) -> Data:
    host = {"hostPort": port["containerPort"]} if host_network and "containerPort" in port else {}
    return {"protocol": "TCP", **host, **port}


def _resources(resources: Mapping[str, Any]) -> Data:
    """The resources of a container, where a limit without a request is the request, too."""
    requests = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {**resources, "requests": requests} if requests else dict(resources)


def _priority(spec: Mapping[str, Any], found: Mapping[str, Any] | None) -> Data:
    if not spec.get("priorityClassName") and "priority" in spec:
        return {}
    if found is None:
        return {"priority": 0}
    policy = spec.get("preemptionPolicy") or found.get("preemptionPolicy") or "PreemptLowerPriority"
    name = found["metadata"]["name"]
    return {"priorityClassName": name, "priority": found.get("value", 0), "preemptionPolicy": policy}


def _pod_status(spec: Mapping[str, Any], status: Mapping[str, Any], now: float) -> Data:
    result = {"phase": "Pending", **status}
    if not spec.get("schedulingGates"):
        return result
    gated = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    return with_condition(result, gated, now)
