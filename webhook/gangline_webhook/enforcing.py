"""Decides how the containers of a pod learn of its GPUs, by who enforces in the cluster what they see.

Rules
- device-plugin: the kubelet has a device plugin choose for each container that requests GPUs, and the container sees
  these alone, counted from 0. So it is told the first ids; ids of the node would hide its GPUs. A container that
  requests none beside one that does has none. Where none requests any, the ids of the node count, as for environment.
- runtime: the container runtime shows what NVIDIA_VISIBLE_DEVICES says, so the pod's UUIDs stand there, and in
  CUDA_VISIBLE_DEVICES. That holds for pods that only request GPUs too, or they would be shown those of others.
- environment: containers see every GPU of the node, and CUDA takes those whose ids it is told.
- Ids mean what the agent means by them only in the order of the PCI bus, so that is told with them. No id names a MIG
  instance: those are told by UUID.
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
"""Who decides in the end which GPUs a container sees."""
MOST_IDS = 64
"""More than any node has."""
MOST_WARNINGS = 5
"""About values that containers set themselves."""
_ORDER = literal(CUDA_DEVICE_ORDER, "PCI_BUS_ID")
_NOTHING = ("", "void", "none")
"""Values of NVIDIA_VISIBLE_DEVICES that show no GPU."""

Seen = Mapping[str, Sequence[EnvVar]]
"""The path of each container to the variables that tell it of its GPUs."""


def by_claim(pod: Pod, claim: GpuClaim | None, enforcement: Enforcement, added: int) -> Seen:
    """For a pod with a claim, whose first container is about to request ``added`` GPUs more."""
    if enforcement == "runtime":
        return {path: _by_uuid() for path, _ in pod.containers()}
    if claim is not None and claim.spec.devices.exclusivity == "MIG":
        told: Sequence[EnvVar] = (from_annotation(CUDA_VISIBLE_DEVICES, ALLOCATED_UUIDS),)
    else:
        told = (from_annotation(CUDA_VISIBLE_DEVICES, ALLOCATED), _ORDER)
    return _unless_plugin(pod, told, enforcement, added)


def by_map(pod: Pod, devices: EnvVar, enforcement: Enforcement) -> Seen:
    """For a pod whose map names ``devices``; a map needs containers that see every GPU, or request as many."""
    return _unless_plugin(pod, (devices, _ORDER), enforcement, 0)


def by_request(pod: Pod, enforcement: Enforcement) -> Seen:
    """For a pod that has neither."""
    if enforcement != "runtime":
        return {}
    return {path: _by_uuid() for path, container in pod.containers() if gpus_of(container)}


def _by_uuid() -> Sequence[EnvVar]:
    names = NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES
    return tuple(from_annotation(name, ALLOCATED_UUIDS) for name in names)


def _unless_plugin(pod: Pod, told: Sequence[EnvVar], enforcement: Enforcement, added: int) -> Seen:
    """What is told, or the first ids where a device plugin shows the containers others."""
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
    """How many GPUs, or pieces of them, a container requests; 0 where that is no number."""
    try:
        return whole_gpus(container) + pieces_of_gpus(container)
    except (GanglineError, ValueError):
        return 0


def doubts(pod: Pod, seen: Seen, enforcement: Enforcement, added: int) -> Iterable[str]:
    """Warnings about containers that tell the runtime themselves which GPUs to show."""
    told: dict[str, list[str]] = {}
    for path, container in pod.containers():
        if any(variable.name == NVIDIA_VISIBLE_DEVICES for variable in seen.get(path, ())):
            continue  # it is replaced
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
