"""ResourceClaims of dynamic resource allocation (resource.k8s.io/v1): their requests, and their allocated devices."""

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
    """The amounts that a request asks of the capacities of each device."""

    requests: dict[str, Quantity] = {}


class ExactDeviceRequest(Object):
    """A request without alternatives: a number of devices, or all devices, that a class and the selectors admit."""

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
    """A request of a claim: `exactly` one thing, or the first available one of some alternatives."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(Object):
    """An attribute that the devices of some requests, or of all, must have in common (matchAttribute), or that must
    differ between them (distinctAttribute).
    """

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
    """One device of a claim: its driver, its pool and its name. Pools usually have the name of their node."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    """Whether the claim only observes the device, so that other claims may have it."""
    request: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    """The UID of this share, if several allocations may have the device."""
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
    """The nodes on which the devices can be used; None for all nodes."""
    allocation_timestamp: str | None = None
    """When the devices were allocated, RFC 3339; set where a device has binding conditions."""


class ResourceClaimConsumerReference(Object):
    """Who may use the devices of a claim: usually a pod."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Object):
    """The driver's status of an allocated device; its `data` are not read."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[PodCondition] | None = None
    """None if there are no conditions: then the API server writes null."""


class ResourceClaimStatus(Object):
    """status of a ResourceClaim. It is written by patches, because drivers keep data in it that are not read here."""

    allocation: ResourceClaimAllocation | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []

    @property
    def results(self) -> list[AllocatedDevice]:
        """The devices; empty before the claim is allocated."""
        return self.allocation.devices.results if self.allocation is not None else []


class ResourceClaim(Object):
    """A claim of dynamic resource allocation."""

    metadata: ObjectMeta
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceClaim"


class ResourceClaimTemplateSpec(Object):
    """spec of a ResourceClaimTemplate: labels, annotations and spec of the claims that are created from it."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(Object):
    """A template from which a claim is created for each pod that names the template."""

    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceClaimTemplate"
