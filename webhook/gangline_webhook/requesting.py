"""Decides what a pod with a claim requests: the GPUs that the claim gives it, so that quotas count them.

Rules
- A claim for whole devices is worth as many of the resource nvidia.com/gpu. Shares and MIG instances have no resource
  that means them on every kind of node, so nothing is added for them.
- A pod that requests GPUs keeps its requests, which have to be as many as the claim gives. One that requests none gets
  them in its first container; where that is not wanted it is refused.
- Quotas are checked after this webhook, so what is added counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from gangline.errors import GanglineError
from gangline.quantity import units
from gangline.wire import GPU, GpuClaim
from gangline_webhook.pods import Container, Pod
from gangline_webhook.reviewing import Operation

Mode = Literal["add", "require", "ignore"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""Add what is missing, refuse where it is missing, or leave pods as they are."""
_KEY = GPU.replace("/", "~1")


@dataclass(frozen=True, slots=True)
class Requests:
    """What to change, or why the pod cannot be."""

    patch: tuple[Operation, ...] = ()
    refusal: str = ""


def requests_of(pod: Pod, claim: GpuClaim, mode: Mode) -> Requests:
    """What becomes of the requests of a pod that uses this claim."""
    containers = pod.spec.containers or []
    if mode == "ignore" or claim.spec.devices.exclusivity != "Exclusive" or not containers:
        return Requests()
    count, name = claim.spec.devices.count, claim.metadata.name
    has = requested(containers, pod.spec.init_containers or [])
    if has is None:
        return Requests()  # no number: the API server says so
    if has == count:
        return Requests()
    if has:
        return Requests(refusal=f"GpuClaim {name} gives the pod {count} GPUs, and its requests for {GPU} are {has}")
    if mode == "require":
        return Requests(refusal=f"GpuClaim {name} gives the pod {count} GPUs: it has to request {GPU}: {count}")
    return Requests(tuple(_added(containers[0], str(count))))


def requested(containers: Iterable[Container], init: Iterable[Container]) -> int | None:
    """How many GPUs a pod requests, as quotas count them; None where one of the amounts is no number."""
    try:
        running = sum(_amount(container) for container in containers)
        return max([running, *(_amount(container) for container in init)])
    except (GanglineError, ValueError):
        return None


def _amount(container: Container) -> int:
    """A request; the limit where there is only that."""
    resources = container.resources
    if resources is None:
        return 0
    for amounts in (resources.requests, resources.limits):
        if amounts and GPU in amounts:
            return units(amounts[GPU])
    return 0


def _added(container: Container, count: str) -> Iterable[Operation]:
    resources = container.resources
    if resources is None:
        yield {
            "op": "add",
            "path": "/spec/containers/0/resources",
            "value": {"limits": {GPU: count}, "requests": {GPU: count}},
        }
        return
    for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        path = f"/spec/containers/0/resources/{field}"
        if amounts:
            yield {"op": "add", "path": f"{path}/{_KEY}", "value": count}
        else:
            yield {"op": "add", "path": path, "value": {GPU: count}}
