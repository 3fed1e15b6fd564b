"""Refuses what no schema can: claims that contradict themselves, and changes of a pod's allocation.

The CRD has refused wrong types, enums and bounds, and some contradictions, by the time a claim arrives here. They are
checked again, because Helm never updates a CRD and a cluster may have an older one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gangline.wire import claim_templates
from gangline.wire.custom_resources import (
    ALLOCATED,
    ALLOCATED_UUIDS,
    ClaimDevices,
    ClaimNetwork,
    ClaimTopology,
    GpuClaim,
    GpuClaimSpec,
)
from gangline_webhook.pods import Pod
from gangline_webhook.reviewing import Verdict

MOST_DEVICES = 64
"""More than any node has; the CRD says so too."""
LEAST_FRACTION = 0.01
MOST_FAULTS = 10
"""Faults of one claim that are told."""
LONGEST_TOLD = 2000
"""Characters of what is told; a claim may have three million."""
IN_USE = ("Reserved", "Bound")
"""Phases of a claim in which some pod has devices of the claim, or had some."""

_MIG_PROFILE = re.compile(r"([1-7]c\.)?[1-7]g\.[1-9][0-9]{0,2}gb([.+-](me|gfx|me\.all))?")
_HCA = re.compile(r"[A-Za-z0-9_.-]+(:[0-9]+)?")


def validate_claim(claim: GpuClaim, old: GpuClaim | None = None) -> Verdict:
    """Whether a claim may be stored; ``old`` is what it replaces.

    A change that leaves the spec alone passes: what was stored before a rule came has to stay manageable.
    """
    if old is not None and old.spec == claim.spec:
        return Verdict()
    spec = claim.spec
    if faults := list(islice(_faults(spec, old), MOST_FAULTS)):
        message = f"GpuClaim {claim.metadata.name}: {'; '.join(faults)}"
        return Verdict(
            allowed=False, message=message if len(message) <= LONGEST_TOLD else f"{message[:LONGEST_TOLD]}..."
        )
    return Verdict(warnings=tuple(_doubts(spec.topology, spec.devices)))


def _faults(spec: GpuClaimSpec, old: GpuClaim | None) -> Iterator[str]:
    """What is wrong with a claim; ``old`` is what it replaces."""
    if old is not None and old.status.phase in IN_USE and _sharing_of(spec.devices) != _sharing_of(old.spec.devices):
        yield "spec.devices: how devices are shared cannot change once a pod has some; make another claim"
    if old is not None and old.status.phase in IN_USE and spec.device_class_name != old.spec.device_class_name:
        yield "spec.deviceClassName: cannot change once a pod has devices; make another claim"
    yield from _devices(spec.devices)
    yield from _sharing(spec.devices)
    yield from _topology(spec.topology, spec.devices)
    yield from claim_templates.faults(spec)
    if spec.network is not None:
        yield from _network(spec.network)


def validate_pod(pod: Pod, old: Pod) -> Verdict:
    """Whether a pod may be changed: its allocation is written once, by the scheduler, in the binding."""
    changed = [key for key in (ALLOCATED, ALLOCATED_UUIDS) if pod.annotation(key) != old.annotation(key)]
    if not changed:
        return Verdict()
    return Verdict(allowed=False, message=f"pod {pod.metadata.name}: only the scheduler sets {' and '.join(changed)}")


def _devices(devices: ClaimDevices) -> Iterator[str]:
    where = "spec.devices"
    if not 1 <= devices.count <= MOST_DEVICES:
        yield f"{where}.count: must be from 1 to {MOST_DEVICES}, got {devices.count}"
    if devices.policy == "preferIds" and not devices.prefer_ids:
        yield f"{where}.policy: preferIds needs the ids in {where}.preferIds"
    if devices.prefer_ids and devices.policy != "preferIds":
        yield f"{where}.preferIds: only for policy preferIds, this claim has {devices.policy}"
    if len(set(devices.prefer_ids)) != len(devices.prefer_ids):
        yield f"{where}.preferIds: names a device twice: {devices.prefer_ids}"
    if any(device < 0 for device in devices.prefer_ids):
        yield f"{where}.preferIds: ids start at 0: {devices.prefer_ids}"


def _sharing(devices: ClaimDevices) -> Iterator[str]:
    where, kind = "spec.devices", devices.exclusivity
    for field, value in (("fraction", devices.fraction), ("memoryGiB", devices.memory_gi_b)):
        if value is not None and kind != "Shared":
            yield f"{where}.{field}: only for exclusivity Shared, this claim is {kind}"
    if devices.fraction is not None and devices.memory_gi_b is not None:
        yield f"{where}: fraction and memoryGiB both say how much of a device; give one"
    if devices.fraction is not None and not LEAST_FRACTION <= devices.fraction <= 1.0:
        yield f"{where}.fraction: must be from {LEAST_FRACTION} to 1.0, got {devices.fraction:g}"
    if devices.memory_gi_b is not None and devices.memory_gi_b < 1:
        yield f"{where}.memoryGiB: must be at least 1, got {devices.memory_gi_b}"
    if devices.mig_profile and kind != "MIG":
        yield f"{where}.migProfile: only for exclusivity MIG, this claim is {kind}"
    if kind == "MIG" and not devices.mig_profile:
        yield f"{where}.migProfile: exclusivity MIG needs a profile, such as 1g.10gb"
    if devices.mig_profile and not _MIG_PROFILE.fullmatch(devices.mig_profile):
        yield f"{where}.migProfile: {devices.mig_profile!r} is no MIG profile; they look like 1g.10gb or 1g.10gb+me"


def _sharing_of(devices: ClaimDevices) -> tuple[object, ...]:
    """What the scheduler counts for a pod on its devices."""
    return devices.exclusivity, devices.fraction, devices.memory_gi_b, devices.mig_profile


def _topology(topology: ClaimTopology, devices: ClaimDevices) -> Iterator[str]:
    where = "spec.topology"
    if topology.min_bandwidth_gbps < 0:
        yield f"{where}.minBandwidthGBps: must not be negative, got {topology.min_bandwidth_gbps}"
    if topology.min_bandwidth_gbps > 0 and topology.mode == "Ignore":
        yield f"{where}: mode Ignore contradicts minBandwidthGBps {topology.min_bandwidth_gbps}"
    if topology.min_bandwidth_gbps > 0 and devices.exclusivity == "MIG":
        yield f"{where}.minBandwidthGBps: MIG instances have no links to each other"
    if topology.mode == "Required" and devices.policy == "spread" and devices.count > 1:
        yield f"{where}.mode: Required wants devices of one NVLink island, policy spread those of different ones"


def _network(network: ClaimNetwork) -> Iterator[str]:
    where = "spec.network"
    if network.min_ports < 0:
        yield f"{where}.minPorts: must not be negative, got {network.min_ports}"
    for name in network.preferred_hcas:
        if not _HCA.fullmatch(name):
            yield f"{where}.preferredHcas: {name!r} is no adapter; they look like mlx5_0 or mlx5_0:1"


def _doubts(topology: ClaimTopology, devices: ClaimDevices) -> Iterator[str]:
    if topology.min_bandwidth_gbps > 0 and devices.count == 1:
        yield "spec.topology.minBandwidthGBps means nothing for one device"
    if topology.min_bandwidth_gbps > 0 and devices.policy == "spread":
        yield "policy spread takes devices from different NVLink islands, minBandwidthGBps asks for fast links"
