"""Checks against objects of the API server whether pods and nodes still are as a plan assumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gangline import model, requests
from gangline_plugins.defragmentation.plan import Move, MoveStep

_OVER = ("Succeeded", "Failed")


def changed(batch: Sequence[Move], pods: Mapping[str, model.Pod]) -> str:
    """Which pod of the next moves is no longer on its node; "" if there is none. Pods are given by UID."""
    return next((why for move in batch for step in move.steps if (why := _pod_is_not(step, pods.get(step.uid)))), "")


def lacks_room(batch: Sequence[Move], pods: Mapping[str, model.Pod], nodes: Iterable[model.Node]) -> str:
    """Which node has no room now for the pods that are to move there next; "" if there is none."""
    by_name = {node.metadata.name: node for node in nodes}
    names = sorted({step.destination for move in batch for step in move.steps})
    return next((why for name in names if (why := _node_is_not(name, by_name.get(name), batch, pods.values()))), "")


def _pod_is_not(step: MoveStep, pod: model.Pod | None) -> str:
    if pod is None or pod.metadata.deletion_timestamp is not None or pod.status.phase in _OVER:
        return f"pod {step.namespace}/{step.name} is gone, or on its way out"
    if pod.spec.node_name != step.source:
        return f"pod {step.namespace}/{step.name} is not on node {step.source} any more"
    return ""


def _node_is_not(name: str, node: model.Node | None, batch: Sequence[Move], pods: Iterable[model.Pod]) -> str:
    if node is None or node.spec.unschedulable:
        return f"node {name} is gone or takes no more pods"
    left = Counter(requests.allocatable(node.status.allocatable, name))
    for pod in pods:
        if pod.spec.node_name == name and pod.status.phase not in _OVER:
            left.subtract(requests.compute(pod.spec, pod.status).real)
    for move in batch:
        come = [step for step in move.steps if step.destination == name]
        for step in come:
            left.subtract(step.requests)
        if come:  # pods that move together leave their old nodes before they arrive
            for step in move.steps:
                if step.source == name:
                    left.update(step.requests)
    short = [resource for resource, amount in left.items() if amount < 0]
    return f"node {name} has no room left for what was to move there: {short[0]}" if short else ""
