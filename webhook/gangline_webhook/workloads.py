"""Looks up the Job and the Service behind a pod that asks for ranks: one quick question for each, nothing kept."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gangline.errors import ApiError, Forbidden, InvalidObject, NotFound
from gangline.kube.interface import Client
from gangline.kube.resources import JOBS, SERVICES, Resource, T
from gangline_webhook.ranks import Behind

PATIENCE = 1.0
"""Seconds for both questions together."""
UNREADABLE = "cannot be read now; try again"
FORBIDDEN = "cannot be read: the webhook has no right to get Jobs and Services"
NOBODY_ASKS = "is not looked at: the webhook runs with --no-ranks, or without credentials"


class Workloads(Protocol):
    """Where Jobs and Services are looked up."""

    async def find(self, namespace: str, job: str, uid: str, service: str) -> Behind:
        """The Job with this name and UID, and the Service; nothing is asked for an empty name."""
        ...


class NoWorkloads:
    """Finds nothing: pods that ask for ranks get none, and warnings about a new Job consider the Job alone."""

    async def find(self, namespace: str, job: str, uid: str, service: str) -> Behind:
        """See the protocol."""
        return Behind(doubt=NOBODY_ASKS)


class AskedWorkloads:
    """Asks the API server each time: a Job and its Service are often younger than any watch."""

    def __init__(self, client: Client, patience: float = PATIENCE) -> None:
        self._client = client
        self._patience = patience

    async def find(self, namespace: str, job: str, uid: str, service: str) -> Behind:
        """See the protocol."""
        try:
            async with asyncio.timeout(self._patience):
                found, beside = await asyncio.gather(
                    self._get(JOBS, job, namespace), self._get(SERVICES, service, namespace)
                )
        except Forbidden:
            return Behind(doubt=FORBIDDEN)
        except (ApiError, InvalidObject, TimeoutError):
            return Behind(doubt=UNREADABLE, is_passing=True)
        same = found if found is not None and found.metadata.uid == uid else None
        return Behind(same, beside, is_service_known=bool(service))

    async def _get(self, resource: Resource[T], name: str, namespace: str) -> T | None:
        if not name:
            return None
        try:
            return await self._client.get(resource, name, namespace=namespace)
        except NotFound:
            return None
