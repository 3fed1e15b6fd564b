"""Finds the GpuClaim that a pod names: from a watch, else by one quick request, so that a pod never waits long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from gangline.errors import ApiError, InvalidObject, NotFound
from gangline.kube.informer import Informer
from gangline.kube.interface import Client
from gangline.kube.resources import GPU_CLAIMS
from gangline.wire.custom_resources import GpuClaim

PATIENCE = 0.8
"""Seconds for the request for a claim that the watch has not delivered yet."""
PAUSE = 2.0
"""Seconds without such requests after one was not answered, while the watch fails: each pod would wait in vain."""
MISSING = "does not exist; the pod waits until it does"
UNREADABLE = (
    "cannot be read now; the pod gets device ids, which name no MIG instance, no variables for the fabric, and no "
    "ResourceClaim if the claim names a DeviceClass"
)


@dataclass(frozen=True, slots=True)
class Found:
    """The claim if it is known; otherwise ``doubt`` says why it is not. It is empty if claims are not looked up."""

    claim: GpuClaim | None = None
    doubt: str = ""


class Claims(Protocol):
    """Looks up claims."""

    async def find(self, namespace: str, name: str) -> Found:
        """The claim of that name; answers within a second."""
        ...


class NoClaims:
    """Finds no claim: pods get no variables for the fabric, and pods with MIG claims get no UUIDs."""

    async def find(self, namespace: str, name: str) -> Found:
        """See the protocol."""
        return Found()


class WatchedClaims:
    """Watches all GpuClaims while `run` runs."""

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        self._client = client
        self._patience = patience
        self._known: dict[tuple[str, str], GpuClaim] = {}
        self._informer = Informer(client, GPU_CLAIMS, self)
        self._again = 0.0
        """When requests go on while the watch fails."""

    async def run(self) -> None:
        """Watch until cancelled; errors of the API are logged, and the watch goes on."""
        await self._informer.run()

    async def find(self, namespace: str, name: str) -> Found:
        """See the protocol.

        A claim and its pod are often created together, so the webhook asks the API server before a claim counts as
        missing. It asks while the watch fails, too: the API server that sends a review may be back for half a minute
        before the watch goes on.
        """
        if claim := self._known.get((namespace, name)):
            return Found(claim)
        is_synced, now = self._informer.synced.is_set(), asyncio.get_running_loop().time()
        if not is_synced and now < self._again:
            return Found(doubt=UNREADABLE)
        try:
            async with asyncio.timeout(self._patience):
                return Found(await self._client.get(GPU_CLAIMS, name, namespace=namespace))
        except NotFound:
            return Found(doubt=MISSING)
        except (ApiError, InvalidObject, TimeoutError):
            self._again = now + PAUSE
            return Found(doubt=UNREADABLE)

    def upsert(self, claim: GpuClaim, /) -> None:
        """Keep a claim that was added or has changed; the informer calls this."""
        self._known[claim.metadata.namespace, claim.metadata.name] = claim

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """Forget a claim that was deleted; the informer calls this."""
        self._known.pop((namespace, name), None)
