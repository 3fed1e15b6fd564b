"""Decides what a new pod gets: which variables go into which containers, and which annotations it may not bring.

Rules
- Only the scheduler says what is allocated: a pod that brings such an annotation loses it.
- CUDA_VISIBLE_DEVICES of a pod with a claim or a map is ours in every container and init container, whatever the
  user wrote, and the user is told. The variables of the fabric and of ranks are proposals: what the user set stays.
- It holds device ids, and UUIDs where ids would not do: no id names a MIG instance, and in a container to which the
  runtime shows some devices only, these are counted from 0.
- A pod with a claim requests the GPUs that the claim gives it; see `requesting`.
- Doing it twice changes nothing, so that the API server may ask again after other webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gangline.wire import ALLOCATED, ALLOCATED_UUIDS, CLAIM, GPU, MIG_PREFIX, SCHEDULING_MAP, SHARED_GPU, GpuClaim
from gangline_webhook import fabric, mapping
from gangline_webhook.pods import (
    CUDA_VISIBLE_DEVICES,
    NVIDIA_VISIBLE_DEVICES,
    Container,
    EnvVar,
    Pod,
    from_annotation,
)
from gangline_webhook.ranks import Ranks
from gangline_webhook.requesting import Mode, Requests, requests_of
from gangline_webhook.reviewing import Operation, Verdict

NO_RANKS = Ranks()


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    scheduler_names: frozenset[str]
    """Whose maps are read."""
    nvidia_visible_devices: bool = False
    """Whether UUIDs go to the container runtime."""
    claim_requests: Mode = "add"
    """What becomes of pods with claims that do not request their GPUs."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A variable for every container; ``firm`` ones replace what the user set."""

    env: EnvVar
    firm: bool = True
    first: bool = False
    """Whether it comes before the user's, which may then refer to it."""


def mutate(pod: Pod, claim: GpuClaim | None, options: Options, ranks: Ranks = NO_RANKS) -> Verdict:
    """What to change in a new pod.

    ``claim`` is the one that it names, None if it names none or it is not known; ``ranks`` are those that it asks for.
    """
    if ranks.refusal:
        return Verdict(allowed=False, message=f"pod {pod.metadata.name or pod.metadata.generate_name}: {ranks.refusal}")
    asked = requests_of(pod, claim, options.claim_requests) if claim is not None else Requests()
    if asked.refusal:
        return Verdict(allowed=False, message=f"pod {pod.metadata.name}: {asked.refusal}")
    patch = [*_without_forged(pod), *asked.patch]
    warnings = [f"the annotation {key} was removed: only the scheduler sets it" for key in _forged(pod)]
    wanted, doubts = _wanted(pod, claim, options)
    warnings += [*doubts, *ranks.warnings]
    wanted += [Wanted(variable, firm=False, first=True) for variable in ranks.variables]
    replaced: dict[str, list[str]] = {}
    for path, container in pod.containers():
        patch += _into(path, container, wanted, replaced)
    for name, values in replaced.items():
        warnings.append(f"{name} is set by Gangline, the pod's own values were replaced: {', '.join(values)}")
    if _exposes_all(pod, claim, wanted):
        warnings.append(
            f"{NVIDIA_VISIBLE_DEVICES}=all shows the containers every GPU of the node, other pods' GPUs too; "
            f"remove it and ask for {GPU} or a GpuClaim"
        )
    return Verdict(patch=tuple(patch), warnings=tuple(warnings))


def _forged(pod: Pod) -> list[str]:
    return [key for key in pod.metadata.annotations or () if key.startswith(ALLOCATED)]


def _without_forged(pod: Pod) -> list[Operation]:
    return [{"op": "remove", "path": f"/metadata/annotations/{_escaped(key)}"} for key in _forged(pod)]


def _escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _wanted(pod: Pod, claim: GpuClaim | None, options: Options) -> tuple[list[Wanted], list[str]]:
    """The variables for this pod, and warnings about its map."""
    mapped = pod.annotation(SCHEDULING_MAP) and pod.spec.scheduler_name in options.scheduler_names
    if not pod.annotation(CLAIM):
        variable, warnings = mapping.visible_devices(pod) if mapped else (None, [])
        return [Wanted(variable)] if variable else [], warnings
    warnings = [f"{SCHEDULING_MAP} is not read: the pod has a claim"] if mapped else []
    by_uuid = options.nvidia_visible_devices or (claim is not None and claim.spec.devices.exclusivity == "MIG")
    wanted = [Wanted(from_annotation(CUDA_VISIBLE_DEVICES, ALLOCATED_UUIDS if by_uuid else ALLOCATED))]
    if options.nvidia_visible_devices:
        wanted.append(Wanted(from_annotation(NVIDIA_VISIBLE_DEVICES, ALLOCATED_UUIDS)))
    if claim:
        wanted += [Wanted(variable, firm=False) for variable in fabric.variables(claim)]
    return wanted, warnings


def _into(path: str, container: Container, wanted: list[Wanted], replaced: dict[str, list[str]]) -> list[Operation]:
    """The steps that put the variables into one container; what they replace is noted in ``replaced``."""
    present = container.env or []
    leading: list[Operation] = []
    added: list[Operation] = []
    patch: list[Operation] = []
    surplus = []
    for variable in wanted:
        name = variable.env.name
        places = [place for place, env in enumerate(present) if env.name == name]
        if not places:
            (leading if variable.first else added).append(msgspec.to_builtins(variable.env))
        elif variable.firm and [present[place] for place in places] != [variable.env]:
            # The last of several counts, so none but ours may stay.
            patch.append(
                {"op": "replace", "path": f"{path}/env/{places[0]}", "value": msgspec.to_builtins(variable.env)}
            )
            surplus += places[1:]
            replaced.setdefault(name, []).append(f"{container.name} {_shown(present[places[-1]])}")
    patch += [{"op": "remove", "path": f"{path}/env/{place}"} for place in sorted(surplus, reverse=True)]
    if not present:
        every = [*leading, *added]
        return [*patch, {"op": "add", "path": f"{path}/env", "value": every}] if every else patch
    patch += [{"op": "add", "path": f"{path}/env/0", "value": env} for env in reversed(leading)]
    return patch + [{"op": "add", "path": f"{path}/env/-", "value": env} for env in added]


def _shown(env: EnvVar) -> str:
    return "valueFrom" if env.value_from else repr(env.value)


def _exposes_all(pod: Pod, claim: GpuClaim | None, wanted: list[Wanted]) -> bool:
    """Whether a container asks the runtime for every GPU though the pod shares them with others, or has none."""
    if any(variable.env.name == NVIDIA_VISIBLE_DEVICES for variable in wanted):
        return False
    containers = [container for _, container in pod.containers()]
    if not any(
        env.name == NVIDIA_VISIBLE_DEVICES and env.value == "all"
        for container in containers
        for env in container.env or ()
    ):
        return False
    if any(SHARED_GPU in _resources(container) for container in containers):
        return True
    if pod.annotation(CLAIM):
        return claim is not None and claim.spec.devices.exclusivity != "Exclusive"
    return not pod.annotation(SCHEDULING_MAP) and not any(_has_gpus(container) for container in containers)


def _resources(container: Container) -> Mapping[str, object]:
    if container.resources is None:
        return {}
    return {**(container.resources.requests or {}), **(container.resources.limits or {})}


def _has_gpus(container: Container) -> bool:
    return any(name == GPU or name.startswith(MIG_PREFIX) for name in _resources(container))
