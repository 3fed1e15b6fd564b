"""ResourceClaims for people: their pods, the devices that they ask for, and the devices that they have or wait for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gangline.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS
from gangline.model.resource_claims import DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo

MOST_DEVICES = 32
"""Devices of one claim that are named, at most."""


class ClaimUse(msgspec.Struct, rename="camel"):
    """One claim."""

    claim: str
    """NAMESPACE/NAME; empty while the claim is not created."""
    template: str
    """The ResourceClaimTemplate from which the claim is created; empty for a claim that a user has created."""
    pods: list[str]
    """The pods that use the claim."""
    asks: str
    """Numbers and classes of devices."""
    devices: list[str]
    """The devices as POOL/DEVICE; pools usually have the name of their node."""
    waits: str = ""
    """Why the claim has no devices; empty if it has devices."""


def claims_of(pod: PodInfo, cluster: Cache) -> list[ClaimUse]:
    """The claims of a pod, in the order in which it names them."""
    found = []
    for entry, template, name in _named(pod):
        claim = cluster.store(RESOURCE_CLAIMS).get(name, pod.namespace) if name else None
        if claim is not None:
            found.append(_use(claim, [pod], template, cluster))
        elif entry not in pod.claims or name:
            found.append(ClaimUse("", template, [pod.key], "", [], _absent(pod, entry, template, name)))
    return found


def lacks_claim(pod: PodInfo, cluster: Cache) -> str:
    """Which claim of a pod is not there; "" if all are there. The scheduler does not try such a pod, nor writes why."""
    return next((each.waits for each in claims_of(pod, cluster) if not each.claim), "")


def claim_use(cluster: Cache, pending: Iterable[PodInfo]) -> list[ClaimUse]:
    """All claims; those that wait come first. Claims are in the order of namespaces and names."""
    pods: dict[tuple[str, str], list[PodInfo]] = {}
    templates: dict[tuple[str, str], str] = {}
    for pod in (*cluster.pods.values(), *pending):
        for _, template, name in _named(pod):
            if name:
                pods.setdefault((pod.namespace, name), []).append(pod)
                templates[pod.namespace, name] = template
    claims = sorted(cluster.store(RESOURCE_CLAIMS), key=lambda each: (each.metadata.namespace, each.metadata.name))
    found = []
    for claim in claims:
        key = claim.metadata.namespace, claim.metadata.name
        found.append(_use(claim, pods.get(key, []), templates.get(key, ""), cluster))
    return sorted(found, key=lambda each: not each.waits)


def claim_names(pod: PodInfo) -> list[str]:
    """The names of the claims that a pod uses, its own and those of its PodGroup, as far as they have been created."""
    return [name for _, _, name in _named(pod) if name]


def _named(pod: PodInfo) -> Iterable[tuple[str, str, str]]:
    """For each entry of a pod's spec.resourceClaims: its name, its template and its claim; "" for what is missing."""
    for entry in pod.spec.resource_claims:
        template = entry.resource_claim_template_name or ""
        yield entry.name, template, entry.resource_claim_name or pod.claims.get(entry.name) or ""
    if pod.extended_claim:
        yield "", "", pod.extended_claim


def _absent(pod: PodInfo, entry: str, template: str, name: str) -> str:
    if name:
        return f"there is no ResourceClaim {pod.namespace}/{name}"
    return f"no ResourceClaim is made yet from the template {template} for {entry}"


def _use(claim: ResourceClaim, pods: Sequence[PodInfo], template: str, cluster: Cache) -> ClaimUse:
    requests = claim.spec.devices.requests
    results = claim.status.results
    devices = [f"{result.pool}/{result.device}" for result in results[:MOST_DEVICES]]
    if len(results) > MOST_DEVICES:
        devices.append(f"and {len(results) - MOST_DEVICES} more")
    return ClaimUse(
        claim=f"{claim.metadata.namespace}/{claim.metadata.name}",
        template=template,
        pods=sorted(pod.key for pod in pods),
        asks=", ".join(" or ".join(_asked(each) for each in _alternatives(request)) for request in requests),
        devices=devices,
        waits="" if claim.status.allocation is not None else _why(claim, pods, cluster),
    )


def _alternatives(request: DeviceRequest) -> Sequence[ExactDeviceRequest | DeviceSubRequest]:
    return [request.exactly] if request.exactly is not None else request.first_available


def _asked(each: ExactDeviceRequest | DeviceSubRequest) -> str:
    number = "all" if each.allocation_mode == "All" else str(each.count or 1)
    return f"{number} {each.device_class_name}"


def _why(claim: ResourceClaim, pods: Sequence[PodInfo], cluster: Cache) -> str:
    """Why a claim has no devices. A DeviceClass is called missing only if some class is known, because a user without
    the right to list classes sees none.
    """
    classes = {each.metadata.name for each in cluster.store(DEVICE_CLASSES)}
    asked = {each.device_class_name for request in claim.spec.devices.requests for each in _alternatives(request)}
    if classes and (missing := sorted(asked - classes)):
        return f"there is no DeviceClass {', '.join(missing)}"
    if not pods:
        return "no pod uses it"
    said = next((message for pod in pods if (message := why_waiting(pod))), "")
    return said or f"{min(pod.key for pod in pods)} has not been tried yet"


def why_waiting(pod: PodInfo) -> str:
    """The message of a pod's condition PodScheduled while the pod has no node; "" if no scheduler has written one."""
    condition = pod.conditions.get("PodScheduled")
    return condition.message if condition is not None and condition.status == "False" else ""
