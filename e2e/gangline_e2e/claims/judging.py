"""Judge who has which device, by the objects of the API alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gangline_e2e.workloads import Manifest, Manifests, is_bound

Device = tuple[str, str, str]
"""Driver, pool and name."""


def devices_of(claim: Manifest) -> list[Device]:
    """The devices that a claim has for itself."""
    results = (claim.get("status", {}).get("allocation") or {}).get("devices", {}).get("results", [])
    return [(each["driver"], each["pool"], each["device"]) for each in results]


def consumers_of(claim: Manifest) -> set[str]:
    """The UIDs of the pods for which a claim is reserved."""
    return {each["uid"] for each in claim.get("status", {}).get("reservedFor", [])}


def disagreements(pods: Manifests, claims: Manifests) -> list[str]:
    """One line for each device in two claims, each claim with devices for nobody, and each bound pod without devices.

    Call this only when all is settled: then a claim with devices is reserved for pods that are bound.
    """
    bound = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods if is_bound(pod)}
    having: defaultdict[Device, list[str]] = defaultdict(list)
    found, served = [], set[str]()
    for claim in claims:
        name, devices, consumers = claim["metadata"]["name"], devices_of(claim), consumers_of(claim)
        for device in devices:
            having[device].append(name)
        if devices and not consumers & bound.keys():
            found.append(f"claim {name} has {len(devices)} devices, and is reserved for {sorted(consumers)}")
        if devices:
            served |= consumers
    found += [f"device {device} is in the claims {names}" for device, names in having.items() if len(names) > 1]
    return found + [f"pod {name} is bound without devices" for uid, name in bound.items() if uid not in served]


def unfinished(claims: Iterable[Manifest], pods: Manifests) -> tuple[list[str], list[str]]:
    """Two lists of claims of pods that are not bound: claims with the finalizer alone, and claims with devices."""
    bound = {pod["metadata"]["uid"] for pod in pods if is_bound(pod)}
    protected, allocated = list[str](), list[str]()
    for claim in claims:
        name, consumers = claim["metadata"]["name"], consumers_of(claim)
        if devices_of(claim) and not consumers & bound:
            allocated.append(name)
        elif claim["metadata"].get("finalizers") and not devices_of(claim):
            protected.append(name)
    return protected, allocated
