"""Translates GpuClaims that name a DeviceClass into ResourceClaimTemplates, by which the nodes carry the claims out.

Rules:
- A GpuClaim with `spec.deviceClassName` gets no devices from the device table of the scheduler. A ResourceClaim is made
  for each of its pods from a template, and the plugin DynamicResources gives devices to the ResourceClaim.
- The spec of a template never changes in Kubernetes. So the name of a template has a hash of its spec: another spec is
  another template, and whoever sees a ResourceClaim can tell whether it was made from the template.
- A claim cannot ask for properties that drivers do not publish of their devices: see `faults`.
- A claim's demands on its node (labels, RDMA, cuFile) are not translated: the plugin GpuClaim filters nodes by them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from gangline.model import ObjectMeta, OwnerReference, ResourceClaimSpec, ResourceClaimTemplate
from gangline.model.resource_claims import (
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimTemplateSpec,
)
from gangline.model.resource_slices import CelDeviceSelector, DeviceSelector
from gangline.wire.custom_resources import CLAIM, CLAIM_TEMPLATE, GpuClaim, GpuClaimSpec

ENTRY = "gpu-claim"
"""The name of the pod's entry in spec.resourceClaims, which the webhook adds."""
REQUEST = "gpus"
"""The name of the only request of such a ResourceClaim."""
MOST_DEVICES = 32
"""Devices that one ResourceClaim may have."""
_DIGITS = 10
_LONGEST = 253 - _DIGITS - 1
_OWN = "device.attributes[device.driver]"
"""The attributes whose domain is the driver."""


def faults(spec: GpuClaimSpec) -> Iterator[str]:
    """Why a claim cannot be carried out: its fields that need a DeviceClass, or that cannot be combined with one."""
    devices, topology = spec.devices, spec.topology
    if not spec.device_class_name:
        if topology.link_attribute:
            yield "spec.topology.linkAttribute: only with spec.deviceClassName"
        return
    told = "cannot be carried out with spec.deviceClassName"
    if devices.exclusivity == "Shared":
        yield f"spec.devices.exclusivity: Shared {told}: drivers share devices in ways of their own"
    if devices.policy != "contiguous":
        yield f"spec.devices.policy: {devices.policy} {told}: the scheduler chooses among the devices of the class"
    if devices.count > MOST_DEVICES:
        yield f"spec.devices.count: a ResourceClaim has at most {MOST_DEVICES} devices, got {devices.count}"
    if topology.min_bandwidth_gbps > 0:
        yield f"spec.topology.minBandwidthGBps: {told}: drivers do not say how fast links are"
    if _needs_links(spec) and not topology.link_attribute:
        yield "spec.topology.mode: Required needs topology.linkAttribute with spec.deviceClassName"
    if topology.link_attribute and "/" not in topology.link_attribute:
        yield f"spec.topology.linkAttribute: must be DOMAIN/NAME, got {topology.link_attribute!r}"


def claim_spec(spec: GpuClaimSpec) -> ResourceClaimSpec:
    """The ResourceClaim that asks for the devices of a claim without `faults`."""
    exactly = ExactDeviceRequest(
        device_class_name=spec.device_class_name,
        selectors=[DeviceSelector(cel=CelDeviceSelector(expression=_selector(spec)))],
        allocation_mode="ExactCount",
        count=spec.devices.count,
    )
    links = [DeviceConstraint([REQUEST], match_attribute=spec.topology.link_attribute)] if _needs_links(spec) else []
    return ResourceClaimSpec(DeviceClaim([DeviceRequest(REQUEST, exactly)], links))


def template_of(claim: GpuClaim) -> ResourceClaimTemplate:
    """The template of a claim without `faults`; the claim owns it, so it goes with the claim."""
    metadata, spec = claim.metadata, claim_spec(claim.spec)
    owner = OwnerReference(claim.kind, metadata.name, metadata.uid, claim.api_version, controller=True)
    made = ObjectMeta(
        name=name_of(metadata.name, spec),
        namespace=metadata.namespace,
        labels={CLAIM_TEMPLATE: "true"},
        annotations={CLAIM: metadata.name},
        owner_references=[owner],
    )
    return ResourceClaimTemplate(made, ResourceClaimTemplateSpec(ObjectMeta(annotations={CLAIM: metadata.name}), spec))


def template_name(claim: GpuClaim) -> str:
    """The name of the template of a claim without `faults`."""
    return name_of(claim.metadata.name, claim_spec(claim.spec))


def name_of(claim: str, spec: ResourceClaimSpec) -> str:
    """The name that a template with this spec has, for a GpuClaim of this name."""
    digits = hashlib.sha256(claim.encode() + b"/" + msgspec.json.encode(spec)).hexdigest()[:_DIGITS]
    return f"{claim[:_LONGEST].rstrip('.-')}-{digits}"


def _needs_links(spec: GpuClaimSpec) -> bool:
    return spec.topology.mode == "Required" and spec.devices.count > 1 and spec.devices.exclusivity == "Exclusive"


def _selector(spec: GpuClaimSpec) -> str:
    """The CEL expression for whole devices, or for instances of a profile: a class may have both."""
    if spec.devices.exclusivity != "MIG":
        return f'!("type" in {_OWN}) || {_OWN}.type != "mig"'
    size, unit, extra = spec.devices.mig_profile.partition("gb")
    marks = ("+", ".") if extra[:1] in ("+", ".") else ("",)  # 1g.10gb+me and 1g.10gb.me
    wanted = ", ".join(msgspec.json.encode(size + unit + mark + extra[len(mark) :]).decode() for mark in marks)
    return f'"profile" in {_OWN} && {_OWN}.profile in [{wanted}]'
