"""Writes the status of GpuClaims in the background, so that no pod waits for it.

Several pods may use one claim; the status shows the latest event of any of them. Statuses that were replaced before
they were written are never written. A status that the API server does not take now is tried again, unless a later one
has replaced it meanwhile; one that the API server refuses is dropped, because no decision depends on it. The watch
shows a written status a moment later, so a new status is compared with the status that was written last.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Literal

import msgspec

from gangline import Conflict, Handle, NotFound, PodInfo, TooManyRequests, Unavailable, custom_resources, resources
from gangline_plugins.gpu.allocation import Allocation, join
from gangline_plugins.versions import version_of

Phase = Literal["Pending", "Reserved", "Bound", "Failed"]
_WRITERS = 16
_UNDER_WAY = sys.maxsize
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds between two tries to write a status; the wait doubles each time."""


class ClaimStatuses:
    """Collects the statuses of claims, and writes them."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._store = handle.state.store(resources.GPU_CLAIMS)
        self._latest: dict[tuple[str, str], custom_resources.GpuClaimStatus] = {}
        self._written: dict[tuple[str, str], tuple[int, custom_resources.GpuClaimStatus]] = {}
        """What is being written, or was written and is not shown by the watch yet; before it, the resourceVersion that
        the claim got by that.
        """
        self._locks = [asyncio.Lock() for _ in range(_WRITERS)]
        """A claim always uses the same lock, so that its statuses are written in order."""
        self._trying: set[tuple[str, str]] = set()
        """The claims whose statuses a task is writing."""
        self._store.subscribe(self)

    def on_upsert(self, claim: custom_resources.GpuClaim) -> None:
        """The watch shows a claim: forget the status that was written if the claim is at least as new as that write."""
        key = (claim.metadata.namespace, claim.metadata.name)
        written = self._written.get(key)
        if written is not None and written[0] <= version_of(claim.metadata):
            del self._written[key]

    def on_remove(self, claim: custom_resources.GpuClaim) -> None:
        """A claim is gone."""
        self._written.pop((claim.metadata.namespace, claim.metadata.name), None)

    def tell(
        self,
        pod: PodInfo,
        phase: Phase,
        node: str = "",
        allocation: Allocation | None = None,
        message: str = "",
        allocated: str = "",
    ) -> None:
        """Set the status of the pod's claim; does nothing for a pod without a claim.

        `allocated` are the devices of a ResourceClaim, which are in no `allocation`.
        """
        name = pod.annotations.get(custom_resources.CLAIM)
        claim: custom_resources.GpuClaim | None = self._store.get(name, pod.namespace) if name else None
        if claim is not None:
            ids = list(allocation.ids) if allocation else []
            told = f"{node}:{join(ids)}" if allocation else allocated
            self.set(claim, custom_resources.GpuClaimStatus(phase, node, ids, told, message))

    def set(self, claim: custom_resources.GpuClaim, status: custom_resources.GpuClaimStatus) -> None:
        """Set the status of a claim, unless that is its status already."""
        key = (claim.metadata.namespace, claim.metadata.name)
        if self._told(key, claim) == status:
            return
        self._latest[key] = status
        self._handle.spawn(partial(self._write, key))

    def is_new(self, pod: PodInfo) -> bool:
        """Whether the pod's claim has no status yet."""
        claim: custom_resources.GpuClaim | None = self._store.get(
            pod.annotations.get(custom_resources.CLAIM, ""), pod.namespace
        )
        return claim is not None and not self._told((claim.metadata.namespace, claim.metadata.name), claim).phase

    def _told(self, key: tuple[str, str], claim: custom_resources.GpuClaim) -> custom_resources.GpuClaimStatus:
        """The status that a claim has or is to get, also while the store does not show what was written."""
        if key in self._latest:
            return self._latest[key]
        version, status = self._written.get(key, (0, claim.status))
        return status if version > version_of(claim.metadata) else claim.status

    async def _write(self, key: tuple[str, str]) -> None:
        """Write the latest status, if that is not done yet, and if no other task is at it. Raises ApiError."""
        if key in self._trying:
            return
        wait = FIRST_WAIT
        self._trying.add(key)
        try:
            while key in self._latest:
                if not await self._try(key):
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, LONGEST_WAIT)
        finally:
            self._trying.discard(key)

    async def _try(self, key: tuple[str, str]) -> bool:
        """Write the latest status; whether the API server has answered. Raises ApiError."""
        async with self._locks[hash(key) % _WRITERS]:
            status, (namespace, name) = self._latest.pop(key), key
            self._written[key] = _UNDER_WAY, status
            fields = dict(zip(status.__struct_encode_fields__, msgspec.structs.astuple(status), strict=True))
            try:
                found = await self._handle.client.patch(
                    resources.GPU_CLAIMS, name, {"status": fields}, namespace=namespace, subresource="status"
                )
                self._note(key, version_of(found.metadata), status)
            except NotFound:
                pass
            except (Conflict, TooManyRequests, Unavailable):  # Conflict: others have changed the claim meanwhile
                self._latest.setdefault(key, status)
                return False
            finally:
                if self._written.get(key, (0, None))[0] == _UNDER_WAY:
                    del self._written[key]
            return True

    def _note(self, key: tuple[str, str], version: int, status: custom_resources.GpuClaimStatus) -> None:
        """Note what was written, until the watch shows it."""
        namespace, name = key
        shown: custom_resources.GpuClaim | None = self._store.get(name, namespace)
        if shown is not None and version > version_of(shown.metadata):
            self._written[key] = version, status
