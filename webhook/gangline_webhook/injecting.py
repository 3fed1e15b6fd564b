"""Decides how to change a new pod: which variables its containers get, and which annotations it loses.

Rules
- Only the scheduler writes allocations: a new pod with such an annotation loses it.
- Variables with GPUs replace the user's values, with a warning; see `enforcing`. Variables of the fabric and of ranks
  are proposals: the user's values stay.
- A pod with a claim requests the GPUs that the claim gives it; see `requesting`. If the claim names a DeviceClass, the
  pod gets a ResourceClaim instead; see `claiming`.
- A second review changes nothing more, so the API server may ask again after other webhooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from gangline.wire.custom_resources import ALLOCATED, AMD_GPU, CLAIM, SCHEDULING_MAP, GpuClaim
from gangline_webhook import claiming, enforcing, fabric, mapping
from gangline_webhook.enforcing import Enforcement, Seen
from gangline_webhook.pods import Container, EnvVar, Pod
from gangline_webhook.ranks import Ranks
from gangline_webhook.requesting import Mode, Requests, requests_of
from gangline_webhook.reviewing import Operation, Verdict

NO_RANKS = Ranks()


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line that decide how pods are changed."""

    scheduler_names: frozenset[str]
    """The schedulers that read claims, maps and requests."""
    enforcement: Enforcement = "device-plugin"
    """Who enforces which GPUs a container sees."""
    claim_requests: Mode = "add"
    """What to do with pods that do not request the GPUs of their claims."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A variable for every container; a ``firm`` variable replaces the user's value."""

    env: EnvVar
    firm: bool = True
    first: bool = False
    """Whether the variable comes before the user's variables, so that these may refer to it."""


def mutate(pod: Pod, claim: GpuClaim | None, options: Options, ranks: Ranks = NO_RANKS) -> Verdict:
    """The changes of a new pod.

    ``claim`` is the GpuClaim that the pod names, None if it names none or the claim is not known. ``ranks`` are the
    variables of ranks, if the pod asks for ranks.
    """
    if ranks.refusal:
        return Verdict(allowed=False, message=f"pod {pod.metadata.name or pod.metadata.generate_name}: {ranks.refusal}")
    asked = _asked(pod, claim, options)
    if asked.refusal:
        return Verdict(allowed=False, message=f"pod {pod.metadata.name}: {asked.refusal}")
    patch = [*_without_forged(pod), *asked.patch]
    warnings = [f"the annotation {key} was removed: only the scheduler sets it" for key in _forged(pod)]
    seen, doubts = _seen(pod, claim, options, asked.added)
    warnings += [*doubts, *_of_claim(pod, options), *([asked.warning] if asked.warning else []), *ranks.warnings]
    more = [Wanted(variable, firm=False) for variable in fabric.variables(claim)] if claim is not None else []
    more += [Wanted(variable, firm=False, first=True) for variable in ranks.variables]
    replaced: dict[str, list[str]] = {}
    for path, container in pod.containers():
        patch += _into(path, container, [*map(Wanted, seen.get(path, ())), *more], replaced)
    for name, values in replaced.items():
        warnings.append(f"{name} is set by Gangline, the pod's own values were replaced: {', '.join(values)}")
    warnings += enforcing.doubts(pod, seen, options.enforcement, asked.added)
    return Verdict(patch=tuple(patch), warnings=tuple(warnings))


def _asked(pod: Pod, claim: GpuClaim | None, options: Options) -> Requests:
    """The requests, or the ResourceClaim, that go with the pod's claim."""
    if claim is None:
        return Requests()
    if claiming.is_carried(claim):
        return claiming.entry_for(pod, claim)
    return requests_of(pod, claim, options.claim_requests)


def _forged(pod: Pod) -> list[str]:
    return [key for key in pod.metadata.annotations or () if key.startswith(ALLOCATED)]


def _without_forged(pod: Pod) -> list[Operation]:
    return [{"op": "remove", "path": f"/metadata/annotations/{_escaped(key)}"} for key in _forged(pod)]


def _escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _seen(pod: Pod, claim: GpuClaim | None, options: Options, added: int) -> tuple[Seen, list[str]]:
    """The variables with the GPUs of the containers, and warnings about the pod's map."""
    is_ours = pod.spec.scheduler_name in options.scheduler_names
    mapped = is_ours and bool(pod.annotation(SCHEDULING_MAP))
    if pod.annotation(CLAIM):
        warnings = [f"{SCHEDULING_MAP} is not read: the pod has a claim"] if mapped else []
        if claiming.is_carried(claim):
            return {}, warnings
        return enforcing.by_claim(pod, claim, options.enforcement, added), warnings
    if mapped:
        devices, warnings = mapping.visible_devices(pod)
        return enforcing.by_map(pod, devices, options.enforcement) if devices else {}, warnings
    return enforcing.by_request(pod, options.enforcement) if is_ours else {}, []


def _of_claim(pod: Pod, options: Options) -> Iterator[str]:
    """Warnings about a pod with a claim that will not be honoured as the user may expect."""
    if not pod.annotation(CLAIM):
        return
    if pod.spec.scheduler_name not in options.scheduler_names:
        names = " or ".join(sorted(options.scheduler_names))
        yield f"the scheduler {pod.spec.scheduler_name} reads no GpuClaim: set spec.schedulerName to {names}"
    if any(AMD_GPU in _resources(container) for _, container in pod.containers()):
        yield f"{AMD_GPU} is counted, and which GPUs it is the device plugin chooses: a GpuClaim gives NVIDIA GPUs"


def _into(path: str, container: Container, wanted: Sequence[Wanted], replaced: dict[str, list[str]]) -> list[Operation]:
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


def _resources(container: Container) -> set[str]:
    resources = container.resources
    return {*(resources.requests or ()), *(resources.limits or ())} if resources else set()
