"""Takes and gives back leases on the API server: all that a pod needs, or none.

Rules:
- The API server decides: a lease is created, or replaced or deleted as it was when it was read, never blindly.
- A pod's leases are taken in the order of their names, so two schedulers do not take half each for ever.
- A failure of the API is raised; it never looks like a device that is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gangline import Client, Clock, Conflict, GanglineError, NotFound, model, resources, rfc3339
from gangline_plugins.gpu.leases.holds import (
    Hold,
    Part,
    holder_for,
    holders_of,
    in_the_way,
    is_over,
    lease_of,
    node_of,
    uid_of,
)

_ATTEMPTS = 50
"""Tries to replace a lease that others keep changing, then it is given up."""
_LANES = 64


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease could not be had: a pod that is alive has it."""

    lease: model.Lease
    holder: str
    hold: Hold


class Locks:
    """The leases in one namespace."""

    def __init__(
        self, client: Client, namespace: str, clock: Clock, held: Callable[[str, str], Collection[int]]
    ) -> None:
        """`held` tells which devices are locked for the UID of a pod on a node."""
        self.namespace = namespace
        self._held = held
        self._client = client
        self._clock = clock
        self._lanes = [asyncio.Lock() for _ in range(_LANES)]
        """A lease always has the same one: this process does not compete with itself."""
        self._written: dict[str, model.Lease] = {}
        """Leases as they were written here last, until they are seen."""

    async def acquire(
        self, parts: Sequence[Part], memory: Sequence[int], seen: Sequence[model.Lease | None]
    ) -> Taken | None:
        """Take all parts, or say which one cannot be had and keep none.

        `memory` is MiB by device id, `seen` for each part its lease as it was seen last. Raises ApiError; then some may
        have been taken, so release them all.
        """
        for place, (part, lease) in enumerate(zip(parts, seen, strict=True)):
            async with self._lane(part.lease):
                taken = await self._take(part, memory, self._written.get(part.lease, lease))
            if taken is not None:
                await self.release(parts[:place])
                return taken
        return None

    async def release(self, parts: Sequence[Part]) -> None:
        """Give back what these parts took, in reverse order. Raises ApiError after trying all of them."""
        failure: GanglineError | None = None
        for part in reversed(parts):
            try:
                async with self._lane(part.lease):
                    await self._give_back(part)
            except GanglineError as error:
                failure = error
        if failure is not None:
            raise failure

    async def drop(self, lease: model.Lease, over: Mapping[str, Hold]) -> None:
        """Take these holds off a lease, whatever else has changed on it; delete it when none is left. Raises ApiError.

        A hold that is not there as given any more stays: it is another one.
        """
        name = lease.metadata.name
        async with self._lane(name):
            found: model.Lease | None = self._written.get(name, lease)
            for _ in range(_ATTEMPTS):
                if found is None:
                    return
                holders = holders_of(found)
                ours = [holder for holder, hold in over.items() if holders.get(holder) == hold]
                try:
                    return await self._write_without(found, ours) if ours or not holders else None
                except NotFound:
                    return
                except Conflict:
                    found = await self._get(name)

    async def live_pod(self, hold: Hold) -> model.Pod | None:
        """The pod of a hold as it is on the API server; None when there is none. Raises ApiError."""
        namespace, _, name = hold.pod.partition("/")
        try:
            return await self._client.get(resources.PODS, name, namespace=namespace) if name else None
        except NotFound:
            return None

    def on_upsert(self, lease: model.Lease) -> None:
        """The watch has brought a lease: what was written here is no news once it is as new."""
        written = self._written.get(lease.metadata.name)
        if written is not None and written.metadata.resource_version == lease.metadata.resource_version:
            del self._written[lease.metadata.name]

    def on_remove(self, lease: model.Lease) -> None:
        """A lease is gone."""
        written = self._written.get(lease.metadata.name)
        if written is not None and written.metadata.uid == lease.metadata.uid:
            del self._written[lease.metadata.name]

    def _lane(self, name: str) -> asyncio.Lock:
        return self._lanes[hash(name) % _LANES]

    async def _take(self, part: Part, memory: Sequence[int], lease: model.Lease | None) -> Taken | None:
        problem: GanglineError | None = None
        for _ in range(_ATTEMPTS):
            try:
                if lease is None:
                    await self._create(part)
                    return None
                return await self._join(part, lease, memory)
            except (Conflict, NotFound) as error:  # it is not as it was seen
                self._written.pop(part.lease, None)
                problem, lease = error, await self._get(part.lease)
        assert problem is not None
        raise problem

    async def _create(self, part: Part) -> None:
        new = lease_of(part.lease, self.namespace, part.node, {part.uid: part.hold}, self._now())
        self._written[part.lease] = await self._client.create(resources.LEASES, new, namespace=self.namespace)

    async def _join(self, part: Part, lease: model.Lease, memory: Sequence[int]) -> Taken | None:
        """Add a hold to a lease that is there, in place of holds that are over. Raises Conflict, NotFound."""
        holders = holders_of(lease)
        while rivals := in_the_way(part.uid, part.hold, holders, memory):
            over = [h for h in rivals if await self._is_over(h, holders[h], part.node)]
            if not over:
                return Taken(lease, rivals[0], holders[rivals[0]])
            for holder in over:
                del holders[holder]
        place = holder_for(part.uid, part.hold, holders)
        mine = holders.get(place)
        adopted = mine is not None and (mine.adopted or mine.scheduler != part.hold.scheduler)
        holders[place] = msgspec.structs.replace(part.hold, adopted=adopted)
        await self._replace(lease, part.node, holders)
        return None

    async def _is_over(self, holder: str, hold: Hold, node: str) -> bool:
        uid = uid_of(holder)
        return is_over(hold, uid, node, await self.live_pod(hold), self._held(uid, node))

    async def _give_back(self, part: Part) -> None:
        for _ in range(_ATTEMPTS):
            lease = await self._get(part.lease)
            if lease is None:
                return
            ours = [h for h, hold in holders_of(lease).items() if hold.by == part.hold.by and not hold.adopted]
            try:
                return await self._write_without(lease, ours) if ours else None
            except NotFound:
                return
            except Conflict:
                continue

    async def _write_without(self, lease: model.Lease, over: Sequence[str]) -> None:
        holders = {holder: hold for holder, hold in holders_of(lease).items() if holder not in over}
        metadata = lease.metadata
        if holders:
            await self._replace(lease, node_of(lease), holders)
            return
        self._written.pop(metadata.name, None)
        await self._client.delete(
            resources.LEASES,
            metadata.name,
            namespace=self.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )

    async def _replace(self, lease: model.Lease, node: str, holders: dict[str, Hold]) -> None:
        name = lease.metadata.name
        new = lease_of(name, self.namespace, node, holders, self._now(), lease)
        self._written[name] = await self._client.replace(resources.LEASES, new)

    async def _get(self, name: str) -> model.Lease | None:
        try:
            return await self._client.get(resources.LEASES, name, namespace=self.namespace)
        except NotFound:
            return None

    def _now(self) -> str:
        return rfc3339(self._clock.now(), micros=True)
