"""Writes to ResourceClaims: the finalizer, the allocation, and who has reserved the devices.

Every write is a patch of these fields only, because drivers keep data in the status of a claim that Gangline does not
read. A patch that depends on the claim as it was read names the claim's resourceVersion. If the claim has changed
since, the patch is a Conflict: the caller reads the claim and decides again. Each method returns the claim after the
write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.errors import NotFound
from gangline.kube.interface import Client, PatchKind
from gangline.kube.resources import RESOURCE_CLAIMS, Resource
from gangline.kube.versions import newest
from gangline.model import ResourceClaim, ResourceClaimAllocation, ResourceClaimConsumerReference

FINALIZER = "resource.kubernetes.io/delete-protection"
"""The finalizer that keeps a claim with devices until the devices are given back."""


class ClaimWriter:
    """Writes to the claims of one API server, in the newest version that it serves.

    Every method raises ApiError: NotFound if there is no such claim or no such kind; Conflict if the claim has changed,
    or another claim has its name now.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._served: Resource[ResourceClaim] | None = None

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim that has this claim's name now; its UID may be another one."""
        resource = await self._resource()
        try:
            return await self._client.get(resource, claim.metadata.name, namespace=claim.metadata.namespace)
        except NotFound:
            self._served = None
            raise

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create a claim, by the newest version of the API only. After Unavailable the claim may exist or not."""
        return await self._client.create(RESOURCE_CLAIMS, claim, namespace=claim.metadata.namespace)

    async def in_namespace(self, namespace: str) -> list[ResourceClaim]:
        """All claims of a namespace as they are now."""
        return (await self._client.list(await self._resource(), namespace=namespace)).items

    async def delete(self, claim: ResourceClaim) -> None:
        """Remove the finalizer and delete the claim, even if pods use its devices. Conflict if it has changed."""
        if FINALIZER in claim.metadata.finalizers:
            claim = await self.unprotect(claim)
        metadata = claim.metadata
        await self._client.delete(await self._resource(), metadata.name, namespace=metadata.namespace, uid=metadata.uid)

    async def protect(self, claim: ResourceClaim) -> ResourceClaim:
        """Add the finalizer, which has to be there before devices are allocated; Conflict if the claim has changed."""
        return await self._patch(claim, {"finalizers": [FINALIZER]}, fresh=True)

    async def unprotect(self, claim: ResourceClaim) -> ResourceClaim:
        """Remove the finalizer, so that a claim that is being deleted goes. Conflict if the claim has changed."""
        return await self._patch(claim, {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}, fresh=True)

    async def allocate(
        self, claim: ResourceClaim, allocation: ResourceClaimAllocation, consumer: ResourceClaimConsumerReference
    ) -> ResourceClaim:
        """Give the claim its devices, reserved for a consumer, in one write; Conflict if the claim has changed."""
        status = {"allocation": msgspec.to_builtins(allocation), "reservedFor": [msgspec.to_builtins(consumer)]}
        return await self._patch(claim, {}, status, fresh=True)

    async def reserve(self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> ResourceClaim:
        """Reserve the claim for one more consumer; Conflict if the claim has changed since it was read."""
        return await self._patch(claim, {}, {"reservedFor": [msgspec.to_builtins(consumer)]}, fresh=True)

    async def release(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        """The consumer of that UID no longer uses the devices. The claim may have changed since it was read."""
        return await self._patch(claim, {}, {"reservedFor": [{"$patch": "delete", "uid": uid}]}, fresh=False)

    async def deallocate(self, claim: ResourceClaim, *uids: str) -> ResourceClaim:
        """Take the devices from the claim, and the reservations of its last consumers; Conflict if it has changed."""
        status: dict[str, Any] = {"allocation": None}
        if gone := [{"$patch": "delete", "uid": uid} for uid in uids if uid]:
            status["reservedFor"] = gone
        return await self._patch(claim, {}, status, fresh=True)

    async def _patch(
        self,
        claim: ResourceClaim,
        metadata: Mapping[str, Any],
        status: Mapping[str, Any] | None = None,
        *,
        fresh: bool,
    ) -> ResourceClaim:
        identity = {"uid": claim.metadata.uid}
        if fresh:
            identity["resourceVersion"] = claim.metadata.resource_version
        patch: dict[str, Any] = {"metadata": {**identity, **metadata}}
        if status is not None:
            patch["status"] = status
        resource = await self._resource()
        try:
            return await self._client.patch(
                resource,
                claim.metadata.name,
                patch,
                namespace=claim.metadata.namespace,
                subresource=None if status is None else "status",
                kind=PatchKind.STRATEGIC,
            )
        except NotFound:
            self._served = None
            raise

    async def _resource(self) -> Resource[ResourceClaim]:
        if self._served is None:
            self._served = await newest(self._client, RESOURCE_CLAIMS)
        return self._served or RESOURCE_CLAIMS  # if the server no longer has the kind, it answers so
