"""Decides what a pod with a claim requests: the GPUs that the claim gives it, so that quotas count them.

Rules
- A claim for whole devices is worth as many of the resource nvidia.com/gpu. Shares and MIG instances have no resource
  that means them on every kind of node, so nothing is added for them.
- A pod that requests GPUs keeps its requests, which have to be as many as the claim gives. One that requests none gets
  them in its first container; where that is not wanted it is refused.
- What disagrees is refused, however requests are treated: else the claim and the request would both be counted.
- Quotas are checked after this webhook, so what is added counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from gangline.errors import GanglineError
from gangline.quantity import units
from gangline.wire.custom_resources import GPU, MIG_PREFIX, SHARED_GPU, GpuClaim
from gangline_webhook.pods import Container, Pod, PodSpec
from gangline_webhook.reviewing import Operation

Mode = Literal["add", "require", "ignore"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""Add what is missing, refuse where it is missing, or leave pods as they are."""
_KEY = GPU.replace("/", "~1")


@dataclass(frozen=True, slots=True)
class Requests:
    """What to change, or why the pod cannot be; ``added`` is how many GPUs the first container gets."""

    patch: tuple[Operation, ...] = ()
    refusal: str = ""
    warning: str = ""
    added: int = 0


def requests_of(pod: Pod, claim: GpuClaim, mode: Mode) -> Requests:
    """What becomes of the requests of a pod that uses this claim."""
    containers = pod.spec.containers or []
    try:
        whole, pieces = requested(pod.spec, whole_gpus), requested(pod.spec, pieces_of_gpus)
    except (GanglineError, ValueError):
        return Requests()  # no number: the API server says so
    count = claim.spec.devices.count
    if refusal := _disagreement(claim, whole, pieces):
        return Requests(refusal=refusal)
    if mode == "ignore" or claim.spec.devices.exclusivity != "Exclusive" or whole or not containers:
        return Requests()
    name = claim.metadata.name
    if mode == "require":
        return Requests(refusal=f"GpuClaim {name} gives the pod {count} GPUs: it has to request {GPU}: {count}")
    first = containers[0].name
    told = f"{GPU}: {count} was added to container {first} for GpuClaim {name}; if another one is meant, write it there"
    return Requests(tuple(_added(containers[0], str(count))), "", told if len(containers) > 1 else "", count)


def _disagreement(claim: GpuClaim, whole: int, pieces: int) -> str:
    """Why a pod may not have this claim and request so many whole GPUs, and so many pieces of them."""
    devices, name = claim.spec.devices, claim.metadata.name
    match devices.exclusivity:
        case "Exclusive" if whole not in (0, devices.count):
            return f"GpuClaim {name} gives the pod {devices.count} GPUs, and its requests for {GPU} are {whole}"
        case "Exclusive" if pieces:
            return f"GpuClaim {name} gives the pod whole GPUs, and it requests pieces of GPUs besides: both would count"
        case "Shared" if whole or pieces:
            return f"GpuClaim {name} gives the pod shares of GPUs, and it requests {GPU} besides: both would count"
        case "MIG" if whole + pieces not in (0, devices.count):
            instances = f"GpuClaim {name} gives the pod {devices.count} MIG instances"
            return f"{instances}, and its requests for GPUs are {whole + pieces}"
    return ""


def requested(spec: PodSpec, of: Callable[[Container], int]) -> int:
    """What a pod requests of something, as quotas count it. GanglineError or ValueError where that is no number."""
    sidecars, most = 0, 0
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            sidecars += of(container)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + of(container))
    return max(most, sidecars + sum(of(container) for container in spec.containers or ()))


def whole_gpus(container: Container) -> int:
    """How many whole GPUs a container requests. GanglineError or ValueError where that is no number."""
    return _amount(container, lambda resource: resource == GPU)


def pieces_of_gpus(container: Container) -> int:
    """How many shared replicas or MIG instances it requests by names of their own. Raises as `whole_gpus`."""
    return _amount(container, lambda resource: resource == SHARED_GPU or resource.startswith(MIG_PREFIX))


def _amount(container: Container, means: Callable[[str], bool]) -> int:
    """The requests for some resources; the limits where there are only these."""
    resources = container.resources
    if resources is None:
        return 0
    amounts = {**(resources.limits or {}), **(resources.requests or {})}
    return sum(units(amount) for resource, amount in amounts.items() if means(resource))


def _added(container: Container, count: str) -> Sequence[Operation]:
    resources = container.resources
    if resources is None:
        both = {"limits": {GPU: count}, "requests": {GPU: count}}
        return [{"op": "add", "path": "/spec/containers/0/resources", "value": both}]
    steps: list[Operation] = []
    for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        path = f"/spec/containers/0/resources/{field}"
        if amounts:
            steps.append({"op": "add", "path": f"{path}/{_KEY}", "value": count})
        else:
            steps.append({"op": "add", "path": path, "value": {GPU: count}})
    return steps
