"""The allocations of dynamic resource allocation (resource.k8s.io), as far as Gangline counts them."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta


class AllocatedDevice(Object):
    """One device of a claim: `device` of the pool of a driver; pools are usually named like their node."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    """Whether the claim only observes the device, so that other claims may have it."""


class AllocatedDevices(Object):
    """The devices of a claim."""

    results: list[AllocatedDevice] = []


class ResourceClaimAllocation(Object):
    """The allocation of a claim."""

    devices: AllocatedDevices = msgspec.field(default_factory=AllocatedDevices)


class ResourceClaimStatus(Object):
    """status of a ResourceClaim."""

    allocation: ResourceClaimAllocation | None = None

    @property
    def results(self) -> list[AllocatedDevice]:
        """The devices; none before it is allocated."""
        return self.allocation.devices.results if self.allocation is not None else []


class ResourceClaim(Object):
    """A claim of dynamic resource allocation."""

    metadata: ObjectMeta
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceClaim"
