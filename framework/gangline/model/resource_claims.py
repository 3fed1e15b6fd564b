"""ResourceClaims of dynamic resource allocation (resource.k8s.io/v1): what is asked for, and what was allocated."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta, PodCondition, Quantity
from gangline.model.resource_slices import DeviceSelector, OpaqueDeviceConfiguration
from gangline.model.selecting import NodeSelector


class DeviceToleration(Object):
    """A taint of devices that a request accepts."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Object):
    """How much of the capacities of each device is asked for."""

    requests: dict[str, Quantity] = {}


class ExactDeviceRequest(Object):
    """What is asked for: a number of devices, or all devices, that a class and the selectors admit."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Object):
    """One alternative of a request."""

    name: str
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: int = 0
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceRequest(Object):
    """A request of a claim: one thing exactly, or the first available of some alternatives."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(Object):
    """What the devices of some requests, or of all, have in common, or each for itself."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Object):
    """Configuration that a claim gives to the drivers of the devices of some requests, or of all."""

    requests: list[str] = []
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Object):
    """The devices that a claim asks for."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(Object):
    """spec of a ResourceClaim."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class AllocatedDevice(Object):
    """One device of a claim: `device` of the pool of a driver; pools are usually named like their node."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    """Whether the claim only observes the device, so that other claims may have it."""
    request: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    """Names this share of a device that several allocations may have."""
    consumed_capacity: dict[str, Quantity] | None = None
    tolerations: list[DeviceToleration] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []


class AllocatedConfiguration(Object):
    """Configuration for the drivers of allocated devices, and whether a class or the claim gave it."""

    source: str = ""
    requests: list[str] = []
    opaque: OpaqueDeviceConfiguration | None = None


class AllocatedDevices(Object):
    """The devices of a claim."""

    results: list[AllocatedDevice] = []
    config: list[AllocatedConfiguration] = []


class ResourceClaimAllocation(Object):
    """The allocation of a claim."""

    devices: AllocatedDevices = msgspec.field(default_factory=AllocatedDevices)
    node_selector: NodeSelector | None = None
    """The nodes on which the devices can be used; None is all."""
    allocation_timestamp: str | None = None
    """When the devices were allocated, RFC 3339; set where a device has binding conditions."""


class ResourceClaimConsumerReference(Object):
    """Who may use the devices of a claim: usually a pod."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Object):
    """What the driver says of an allocated device; its data are not read."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[PodCondition] | None = None
    """The API server writes null where there are none."""


class ResourceClaimStatus(Object):
    """status of a ResourceClaim. It is written by patches, because drivers keep data in it that are not read here."""

    allocation: ResourceClaimAllocation | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []

    @property
    def results(self) -> list[AllocatedDevice]:
        """The devices; none before it is allocated."""
        return self.allocation.devices.results if self.allocation is not None else []


class ResourceClaim(Object):
    """A claim of dynamic resource allocation."""

    metadata: ObjectMeta
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceClaim"


class ResourceClaimTemplateSpec(Object):
    """spec of a ResourceClaimTemplate: labels, annotations and spec of the claims that are made from it."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(Object):
    """Claims are made from it, one for each pod that names it."""

    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceClaimTemplate"
