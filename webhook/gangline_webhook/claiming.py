"""Gives a pod the entry for a ResourceClaim, if its GpuClaim names a DeviceClass: the node obeys that claim.

Rules
- The entry names the template that the scheduler keeps for the GpuClaim as it is now. It never changes afterwards.
- The containers that name the entry in resources.claims see the devices. If none does, the first container gets them.
- Nothing else tells the pod its devices: no request for GPUs is added, because both would count, and no variable,
  because the driver shows the devices.
"""

from __future__ import annotations

from gangline.errors import GanglineError
from gangline.wire import claim_templates
from gangline.wire.custom_resources import GPU, GpuClaim
from gangline_webhook.pods import Container, Pod
from gangline_webhook.requesting import Requests, pieces_of_gpus, requested, whole_gpus
from gangline_webhook.reviewing import Operation

_ENTRY = claim_templates.ENTRY


def is_carried(claim: GpuClaim | None) -> bool:
    """Whether ResourceClaims carry a claim out."""
    return claim is not None and bool(claim.spec.device_class_name)


def entry_for(pod: Pod, claim: GpuClaim) -> Requests:
    """What to do with a pod whose claim ResourceClaims carry out."""
    if refusal := _refusal(pod, claim):
        return Requests(refusal=refusal)
    patch: list[Operation] = []
    entries = pod.spec.resource_claims or []
    if all(each.name != _ENTRY for each in entries):
        entry = {"name": _ENTRY, "resourceClaimTemplateName": claim_templates.template_name(claim)}
        patch.append(_appended("/spec/resourceClaims", entry, bool(entries)))
    warning, containers = "", pod.spec.containers or []
    if containers and not any(map(_names_entry, (container for _, container in pod.containers()))):
        patch.append(_into_first(containers[0]))
        if len(containers) > 1:
            told = f"container {containers[0].name} gets the devices of GpuClaim {claim.metadata.name}"
            warning = f"{told}; others get them with resources.claims: [{{name: {_ENTRY}}}]"
    return Requests(tuple(patch), "", warning, claim.spec.devices.count)


def _refusal(pod: Pod, claim: GpuClaim) -> str:
    """Why the claim cannot be carried out for this pod; empty if it can."""
    name = claim.metadata.name
    if wrong := next(claim_templates.faults(claim.spec), ""):
        return f"GpuClaim {name}: {wrong}"
    try:
        whole, pieces = requested(pod.spec, whole_gpus), requested(pod.spec, pieces_of_gpus)
    except (GanglineError, ValueError):
        whole, pieces = 0, 0  # not a number: the API server refuses the pod
    if whole or pieces:
        gives = f"GpuClaim {name} gives the pod devices of DeviceClass {claim.spec.device_class_name}"
        return f"{gives}, and it requests {GPU} besides: both would count"
    template = claim_templates.template_name(claim)
    for each in pod.spec.resource_claims or ():
        if each.name == _ENTRY and each.resource_claim_template_name != template:
            return f"spec.resourceClaims: the name {_ENTRY} is kept for GpuClaim {name}; take the entry out"
    return ""


def _names_entry(container: Container) -> bool:
    claims = container.resources.claims if container.resources is not None else None
    return any(each.name == _ENTRY for each in claims or ())


def _into_first(container: Container) -> Operation:
    path, claim = "/spec/containers/0/resources", {"name": _ENTRY}
    if container.resources is None:
        return {"op": "add", "path": path, "value": {"claims": [claim]}}
    return _appended(f"{path}/claims", claim, bool(container.resources.claims))


def _appended(path: str, value: object, has_some: bool) -> Operation:
    """The step that puts a value at the end of a list, which may be missing."""
    return {"op": "add", "path": f"{path}/-" if has_some else path, "value": value if has_some else [value]}
