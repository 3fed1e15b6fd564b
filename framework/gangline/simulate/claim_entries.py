"""Does the work of the admission webhook for new pods whose GpuClaim names a DeviceClass: adds a ResourceClaim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.simulate.history import Data
from gangline.wire import claim_templates
from gangline.wire.custom_resources import CLAIM, GpuClaim


def claim_of(pod: Mapping[str, Any]) -> str:
    """The name of the GpuClaim of a new pod; "" for none, and for a pod that has a node already."""
    if pod.get("spec", {}).get("nodeName"):
        return ""
    name: str = (pod.get("metadata", {}).get("annotations") or {}).get(CLAIM, "")
    return name


def with_entry(pod: Data, claim: Mapping[str, Any]) -> Data:
    """The pod with the entry for a ResourceClaim, if its GpuClaim names a DeviceClass that can carry the claim out."""
    try:
        read = msgspec.convert(claim, GpuClaim, strict=False)
    except msgspec.ValidationError:
        return pod
    spec = pod.get("spec", {})
    entries, containers = spec.get("resourceClaims") or [], spec.get("containers") or []
    if not read.spec.device_class_name or any(claim_templates.faults(read.spec)):
        return pod
    if any(each.get("name") == claim_templates.ENTRY for each in entries):
        return pod
    entry = {"name": claim_templates.ENTRY, "resourceClaimTemplateName": claim_templates.template_name(read)}
    changed = {**spec, "resourceClaims": [*entries, entry]}
    if containers and not any(map(_names_entry, [*containers, *(spec.get("initContainers") or [])])):
        resources = containers[0].get("resources") or {}
        named = {**resources, "claims": [*(resources.get("claims") or []), {"name": claim_templates.ENTRY}]}
        changed["containers"] = [{**containers[0], "resources": named}, *containers[1:]]
    return {**pod, "spec": changed}


def _names_entry(container: Mapping[str, Any]) -> bool:
    claims = (container.get("resources") or {}).get("claims") or []
    return any(each.get("name") == claim_templates.ENTRY for each in claims)
