"""The lease part of an API server in memory, with one client for each replica whose connection a test can cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import msgspec

from gangline.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from gangline.kube.interface import Client, EventType, WatchEvent
from gangline.kube.resources import LEASES, Resource
from gangline.model import Lease, LeaseSpec, ObjectMeta

_LEASES = msgspec.json.Decoder(Lease)


def copied(lease: Lease) -> Lease:
    """The lease as it comes over the network, which takes a tenth of the time of a deep copy."""
    return _LEASES.decode(msgspec.json.encode(lease))


class LeaseStore:
    """The leases by namespace and name; every write gives a new resourceVersion."""

    def __init__(self) -> None:
        self.leases: dict[tuple[str, str], Lease] = {}
        self.history: list[Lease] = []
        self.deletions: set[str] = set()
        """The resourceVersions of the deletions in the history."""
        self.written = asyncio.Event()
        """Set at the next write, and then replaced by a new event."""
        self._version = 0

    def write(self, lease: Lease) -> Lease:
        stored = self._tell(lease)
        self.leases[stored.metadata.namespace, stored.metadata.name] = stored
        return copied(stored)

    def delete(self, namespace: str, name: str) -> None:
        """Deletes a lease, if it exists, as another client would."""
        lease = self.leases.pop((namespace, name), None)
        if lease is not None:
            self.deletions.add(self._tell(lease).metadata.resource_version)

    def _tell(self, lease: Lease) -> Lease:
        self._version += 1
        stored = copied(lease)
        stored.metadata.resource_version = str(self._version)
        self.history.append(stored)
        self.written.set()
        self.written = asyncio.Event()
        return stored

    def put(self, namespace: str, name: str, spec: LeaseSpec) -> None:
        """Writes a lease over any existing one, as another client would."""
        self.write(Lease(ObjectMeta(name=name, namespace=namespace), spec))


class LeaseClient:
    """The client of one replica. While ``fault`` is set, requests fail with it; while ``hangs``, none is answered."""

    def __init__(self, store: LeaseStore) -> None:
        self.fault: ApiError | None = None
        self.hangs = False
        self.latency = 0.01  # seconds, each way
        self.asked: list[str] = []
        self.refused: set[str] = set()
        """The verbs that the replica may not use."""
        self._store = store

    def as_client(self) -> Client:
        return cast(Client, self)

    def cut(self) -> None:
        self.fault = Unavailable(0, "", "connection refused")

    def mend(self) -> None:
        self.fault = None
        self.hangs = False

    async def get(self, resource: Resource[Lease], name: str, *, namespace: str | None = None) -> Lease:
        await self._travel("get", resource)
        found = self._store.leases.get((namespace or "", name))
        await asyncio.sleep(self.latency)
        if found is None:
            raise NotFound(404, "NotFound", f'leases "{name}" not found')
        return copied(found)

    async def watch(
        self, resource: Resource[Lease], *, resource_version: str, namespace: str, field_selector: str
    ) -> AsyncIterator[WatchEvent[Lease]]:
        await self._travel("watch", resource)
        seen = int(resource_version)
        while True:
            written = self._store.written
            for lease in [each for each in self._store.history if int(each.metadata.resource_version) > seen]:
                await self._answer()
                seen = int(lease.metadata.resource_version)
                if (lease.metadata.namespace, f"metadata.name={lease.metadata.name}") == (namespace, field_selector):
                    version = lease.metadata.resource_version
                    kind = EventType.DELETED if version in self._store.deletions else EventType.MODIFIED
                    yield WatchEvent(kind, copied(lease), version)
            await written.wait()

    async def create(self, resource: Resource[Lease], obj: Lease, *, namespace: str | None = None) -> Lease:
        await self._travel("create", resource)
        if (obj.metadata.namespace, obj.metadata.name) in self._store.leases:
            raise Conflict(409, "AlreadyExists", f'leases "{obj.metadata.name}" already exists')
        stored = self._store.write(obj)
        await asyncio.sleep(self.latency)
        return stored

    async def replace(self, resource: Resource[Lease], obj: Lease, *, subresource: str | None = None) -> Lease:
        await self._travel("replace", resource)
        found = self._store.leases.get((obj.metadata.namespace, obj.metadata.name))
        if found is None:
            raise NotFound(404, "NotFound", f'leases "{obj.metadata.name}" not found')
        if found.metadata.resource_version != obj.metadata.resource_version:
            raise Conflict(409, "Conflict", "the object has been modified")
        stored = self._store.write(obj)
        await asyncio.sleep(self.latency)
        return stored

    async def _travel(self, verb: str, resource: Resource[Lease]) -> None:
        assert resource is LEASES
        self.asked.append(verb)
        if verb in self.refused:
            raise Forbidden(403, "Forbidden", f"leases is forbidden: {verb}")
        await self._answer()

    async def _answer(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency)
        if self.fault is not None:
            raise self.fault
