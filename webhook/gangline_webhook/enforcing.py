"""Decides which variables tell the containers of a pod their GPUs; this depends on who enforces what containers see.

Rules
- device-plugin: a device plugin gives GPUs to each container that requests some. The container sees only these, counted
  from 0, so the variable has the first ids; ids of the node would hide the GPUs. If one container of a pod requests
  GPUs, the others have none. If no container requests GPUs, the variable has the ids of the node, as for environment.
- runtime: the container runtime shows the devices in NVIDIA_VISIBLE_DEVICES, so this variable and CUDA_VISIBLE_DEVICES
  have the pod's UUIDs, also if the pod only requests GPUs; otherwise it would see GPUs of other pods.
- environment: containers see every GPU of the node, and CUDA uses the GPUs whose ids are in the variable.
- CUDA's ids equal the agent's ids only in the order of the PCI bus, so a second variable sets this order. A MIG
  instance has no id, so the variable has its UUID.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal, get_args

from gangline.errors import GanglineError
from gangline.wire.custom_resources import ALLOCATED, ALLOCATED_UUIDS, CLAIM, GPU, GpuClaim
from gangline_webhook.pods import (
    CUDA_DEVICE_ORDER,
    CUDA_VISIBLE_DEVICES,
    NVIDIA_VISIBLE_DEVICES,
    Container,
    EnvVar,
    Pod,
    from_annotation,
    literal,
)
from gangline_webhook.requesting import pieces_of_gpus, whole_gpus

Enforcement = Literal["device-plugin", "runtime", "environment"]
ENFORCEMENTS: tuple[Enforcement, ...] = get_args(Enforcement)
"""Who enforces which GPUs a container sees."""
MOST_IDS = 64
"""At most this many ids in a variable: more than any node has."""
MOST_WARNINGS = 5
"""At most this many warnings about values that containers set themselves."""
_ORDER = literal(CUDA_DEVICE_ORDER, "PCI_BUS_ID")
_NOTHING = ("", "void", "none")
"""Values of NVIDIA_VISIBLE_DEVICES that show no GPU."""

Seen = Mapping[str, Sequence[EnvVar]]
"""For the path of each container, the variables with its GPUs."""


def by_claim(pod: Pod, claim: GpuClaim | None, enforcement: Enforcement, added: int) -> Seen:
    """The variables for a pod with a claim; ``added`` GPUs are added to the requests of the first container."""
    if enforcement == "runtime":
        return {path: _by_uuid() for path, _ in pod.containers()}
    if claim is not None and claim.spec.devices.exclusivity == "MIG":
        told: Sequence[EnvVar] = (from_annotation(CUDA_VISIBLE_DEVICES, ALLOCATED_UUIDS),)
    else:
        told = (from_annotation(CUDA_VISIBLE_DEVICES, ALLOCATED), _ORDER)
    return _unless_plugin(pod, told, enforcement, added)


def by_map(pod: Pod, devices: EnvVar, enforcement: Enforcement) -> Seen:
    """The variables for a pod whose map names ``devices``. Its containers have to see every GPU, or request as many."""
    return _unless_plugin(pod, (devices, _ORDER), enforcement, 0)


def by_request(pod: Pod, enforcement: Enforcement) -> Seen:
    """The variables for a pod with neither claim nor map."""
    if enforcement != "runtime":
        return {}
    return {path: _by_uuid() for path, container in pod.containers() if gpus_of(container)}


def _by_uuid() -> Sequence[EnvVar]:
    names = NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES
    return tuple(from_annotation(name, ALLOCATED_UUIDS) for name in names)


def _unless_plugin(pod: Pod, told: Sequence[EnvVar], enforcement: Enforcement, added: int) -> Seen:
    """The given variables, or the first ids for containers whose GPUs a device plugin chooses."""
    if enforcement == "device-plugin":
        asked = {path: gpus_of(container) for path, container in pod.containers()}
        if added:
            asked["/spec/containers/0"] += added
        if any(asked.values()):
            return {path: _first(number) for path, number in asked.items() if 0 < number <= MOST_IDS}
    return {path: told for path, _ in pod.containers()}


def _first(number: int) -> Sequence[EnvVar]:
    return literal(CUDA_VISIBLE_DEVICES, ",".join(map(str, range(number)))), _ORDER


def gpus_of(container: Container) -> int:
    """How many GPUs or replicas a container requests; 0 if the request is no number."""
    try:
        return whole_gpus(container) + pieces_of_gpus(container)
    except (GanglineError, ValueError):
        return 0


def doubts(pod: Pod, seen: Seen, enforcement: Enforcement, added: int) -> Iterable[str]:
    """Warnings about containers that set the runtime's variable themselves."""
    told: dict[str, list[str]] = {}
    for path, container in pod.containers():
        if any(variable.name == NVIDIA_VISIBLE_DEVICES for variable in seen.get(path, ())):
            continue  # the variable will be replaced
        for variable in container.env or ():
            if variable.name == NVIDIA_VISIBLE_DEVICES and (variable.value_from or variable.value not in _NOTHING):
                told.setdefault("valueFrom" if variable.value_from else variable.value, []).append(container.name)
    has_claim = bool(pod.annotation(CLAIM))
    if seen and (enforcement == "environment" or not has_claim):
        told.pop("all", None)  # ids of the node choose among all of them
    for value, names in islice(told.items(), MOST_WARNINGS):
        where = ", ".join(names)
        if added or any(gpus_of(container) for _, container in pod.containers()):
            advice = f"take it out of {where}: the pod is shown its GPUs without it"
        elif has_claim:
            advice = f"{CUDA_VISIBLE_DEVICES} alone keeps {where} from the others"
        else:
            advice = f"take it out of {where}, and ask for {GPU} or a GpuClaim"
        shows = (
            "every GPU of the node, other pods' GPUs too" if value == "all" else "what it names, whatever is allocated"
        )
        yield f"{NVIDIA_VISIBLE_DEVICES}={value} shows the containers {shows}; {advice}"
