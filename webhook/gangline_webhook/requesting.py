"""Makes a pod with a claim request the GPUs that the claim gives it, so that quotas count them.

Rules
- A claim for N whole devices goes with N of the resource nvidia.com/gpu. No resource means a share or a MIG instance on
  every kind of node, so nothing is added for them.
- A pod that requests GPUs keeps its requests; they have to be as many as the claim gives. For a pod without requests
  they are added to its first container, or the pod is refused, as the settings say.
- A pod whose claim and requests disagree is always refused: otherwise both would be counted.
- Kubernetes checks quotas after this webhook, so added requests count.
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
"""Whether to add a missing request, to refuse the pod, or to ignore it."""
_KEY = GPU.replace("/", "~1")


@dataclass(frozen=True, slots=True)
class Requests:
    """The change, or the reason of a refusal; ``added`` is the number of GPUs added to the first container."""

    patch: tuple[Operation, ...] = ()
    refusal: str = ""
    warning: str = ""
    added: int = 0


def requests_of(pod: Pod, claim: GpuClaim, mode: Mode) -> Requests:
    """What to do with the requests of a pod that uses this claim."""
    containers = pod.spec.containers or []
    try:
        whole, pieces = requested(pod.spec, whole_gpus), requested(pod.spec, pieces_of_gpus)
    except (GanglineError, ValueError):
        return Requests()  # not a number: the API server refuses the pod
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
    """Why this claim and these numbers of whole GPUs and of replicas disagree; empty if they agree."""
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
    """How much a pod requests of a resource, as quotas count it. GanglineError or ValueError if that is no number."""
    sidecars, most = 0, 0
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            sidecars += of(container)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + of(container))
    return max(most, sidecars + sum(of(container) for container in spec.containers or ()))


def whole_gpus(container: Container) -> int:
    """How many whole GPUs a container requests. Raises GanglineError or ValueError for a request that is no number."""
    return _amount(container, lambda resource: resource == GPU)


def pieces_of_gpus(container: Container) -> int:
    """How many replicas or MIG instances a container requests by resources of their own. Raises as `whole_gpus`."""
    return _amount(container, lambda resource: resource == SHARED_GPU or resource.startswith(MIG_PREFIX))


def _amount(container: Container, means: Callable[[str], bool]) -> int:
    """The requests for some resources; the limit of a resource without a request."""
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
