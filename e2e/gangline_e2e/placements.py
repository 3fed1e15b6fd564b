"""Judge placements by the API's own objects alone: what a pod asks for, what a node has, what may stand where.

On purpose not Gangline's own arithmetic: quantities are exact decimals, and nothing here is fast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from gangline_e2e.workloads import Manifest, Manifests, is_bound

Amounts = dict[str, Decimal]
CORDON = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}


def faults(pods: Iterable[Manifest], nodes: Manifests) -> list[str]:
    """One line for each bound pod whose node must not have it, and for each node that holds more than it can."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    used: dict[str, Amounts] = defaultdict(lambda: defaultdict(Decimal))
    found = []
    for pod in filter(is_bound, pods):
        where = pod["spec"]["nodeName"]
        if where not in by_name:
            found.append(f"pod {pod['metadata']['name']}: node {where} does not exist")
            continue
        if why := misfit(pod, by_name[where]):
            found.append(f"pod {pod['metadata']['name']} on node {where}: {why}")
        for resource, amount in requests(pod).items():
            used[where][resource] += amount
    for where, amounts in used.items():
        room = allocatable(by_name[where])
        over = [f"{r} {n} of {room.get(r, 0)}" for r, n in sorted(amounts.items()) if n > room.get(r, 0)]
        found.extend(f"node {where} is overcommitted: {each}" for each in over)
    return found


def misfit(pod: Manifest, node: Manifest) -> str:
    """Why a node must not have a pod, resources aside; empty if it may: selector, taints, cordon."""
    labels = node["metadata"].get("labels", {})
    wanted = pod["spec"].get("nodeSelector", {})
    if any(labels.get(key) != value for key, value in wanted.items()):
        return f"its labels do not match {wanted}"
    taints = list(node["spec"].get("taints", ()))
    if node["spec"].get("unschedulable"):
        taints.append(CORDON)
    tolerations = pod["spec"].get("tolerations", ())
    for taint in taints:
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
            return f"it has the taint {taint['key']}"
    return ""


def requests(pod: Manifest) -> Amounts:
    """What a pod takes on its node: its containers or its largest init container, the overhead, and one pod."""
    spec = pod["spec"]
    total: Amounts = defaultdict(Decimal, pods=Decimal(1))
    for container in spec["containers"]:
        for resource, amount in _requested(container).items():
            total[resource] += amount
    for container in spec.get("initContainers", ()):
        for resource, amount in _requested(container).items():
            total[resource] = max(total[resource], amount)
    for resource, amount in _amounts(spec.get("overhead", {})).items():
        total[resource] += amount
    return dict(total)


def allocatable(node: Manifest) -> Amounts:
    """What a node has for pods."""
    return _amounts(node["status"]["allocatable"])


def nodes_of(pods: Iterable[Manifest]) -> set[str]:
    """The names of the nodes that hold at least one of the pods."""
    return {pod["spec"]["nodeName"] for pod in pods if is_bound(pod)}


def _requested(container: Manifest) -> Amounts:
    return _amounts(container.get("resources", {}).get("requests", {}))


def _amounts(quantities: dict[str, Any]) -> Amounts:
    from kubernetes.utils.quantity import parse_quantity  # loads the whole client, which takes 0.2 s

    return {
        resource: parse_quantity(quantity)  # type: ignore[no-untyped-call]  # ships no annotations
        for resource, quantity in quantities.items()
    }


def _tolerates(toleration: Manifest, taint: Manifest) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    return exists or toleration.get("value", "") == taint.get("value", "")
