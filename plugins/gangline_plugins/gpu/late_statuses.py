"""Writes the status of GpuClaims whose pods were bound by a scheduler that died before it could say so.

While this process leads, a claim that says neither Bound nor Failed at two looks in a row, and is the claim of a bound
pod with devices, becomes Bound with the devices of that pod.
"""

from __future__ import annotations

import asyncio

from gangline import Handle, custom_resources, resources
from gangline_plugins.gpu.claim_status import ClaimStatuses
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.late_claims import claim_key

LOOK = 30.0
"""Seconds between two looks. What is under way is over by the next one."""
BREATH = 1024
"""Pods that are looked at before other tasks get their turn."""
Unsaid = dict[tuple[str, str], custom_resources.GpuClaimStatus]
"""Statuses by namespace and name of the claim."""


class LateStatuses:
    """Looks after the claims of one profile."""

    def __init__(self, handle: Handle, table: DeviceTable, statuses: ClaimStatuses) -> None:
        self._pods = handle.state.pods
        self._claims = handle.state.store(resources.GPU_CLAIMS)
        self._table = table
        self._statuses = statuses

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        before: Unsaid = {}
        while True:
            await asyncio.sleep(LOOK)
            now = self._unsaid()
            await self._say({key: status for key, status in now.items() if before.get(key) == status})
            before = now

    def _unsaid(self) -> Unsaid:
        """The claims that do not say how it went."""
        return {
            (claim.metadata.namespace, claim.metadata.name): claim.status
            for claim in self._claims
            if claim.status.phase not in ("Bound", "Failed")
        }

    async def _say(self, stale: Unsaid) -> None:
        if not stale:
            return
        for number, pod in enumerate(list(self._pods.values()), start=1):
            if claim_key(pod) in stale and custom_resources.ALLOCATED in pod.annotations:
                allocation = self._table.allocation(pod.uid)
                if allocation is not None:
                    self._statuses.tell(pod, "Bound", pod.node_name, allocation)
            if number % BREATH == 0:
                await asyncio.sleep(0)
