"""Acquires and releases leases on the API server: all leases that a pod needs, or none.

Rules:
- The API server decides. A lease is created, or replaced or deleted only at the resource version that was read.
- The leases of a pod are acquired in the order of their names, so two schedulers never wait for each other's half.
- A failure of the API server is raised; it never counts as a taken device.
- No request is sent whose answer is known: what this process wrote or deleted counts before the watch delivers it,
  and the UID of a pod that is gone never comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gangline import Client, Clock, Conflict, GanglineError, NotFound, Store, failpoint, model, resources, rfc3339
from gangline_plugins.gpu.leases.holds import (
    Hold,
    HoldPart,
    holder_for,
    holders_of,
    in_the_way,
    is_over,
    lease_of,
    node_of,
    uid_of,
)
from gangline_plugins.latest import Latest
from gangline_plugins.versions import version_of

HasEnded = Callable[[Hold], bool]
"""Whether the attempt that wrote a hold has ended: it binds no pod any more."""
_ATTEMPTS = 50
"""At most this many tries to replace a lease that others keep changing."""
_LANES = 64
_MOST_GONE = 20_000
"""At most this many pods are remembered to be gone."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease that could not be acquired, because a live pod holds it."""

    lease: model.Lease
    holder: str
    hold: Hold


@dataclass(frozen=True, slots=True)
class Restored:
    """What has become of the leases that a bound pod lacked."""

    taken: Taken | None
    """A lease that another live pod holds."""
    made: int
    """How many leases were made."""


class Locks:
    """The leases in one namespace."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        clock: Clock,
        store: Store[model.Lease],
        held: Callable[[str, str], Collection[int]],
        has_ended: HasEnded = lambda hold: False,
    ) -> None:
        """`store` has the leases as the watch delivers them. `held` returns the devices that are locked on a node for
        the pod with a UID. What an attempt that `has_ended` has locked for a pod without a node gives way.
        """
        self.namespace = namespace
        self.has_ended = has_ended
        self._store = store
        self._held = held
        self._client = client
        self._clock = clock
        self._lanes = [asyncio.Lock() for _ in range(_LANES)]
        """A lease always uses the same lock, so that this process does not compete with itself."""
        self._written: dict[str, model.Lease] = {}
        """The leases that this process wrote last, until the watch delivers them."""
        self._deleted: dict[str, str] = {}
        """The UIDs of the leases that this process deleted, by name, until the watch delivers that."""
        self._removed: dict[str, set[str]] = {}
        """For each lease that this process is writing, by name: the UIDs of the leases of this name of which the watch
        has told meanwhile that they were deleted."""
        self._gone: Latest[str, None] = Latest(_MOST_GONE)
        """The UIDs of pods that the API server no longer has, the latest last."""

    async def acquire(self, parts: Sequence[HoldPart], memory: Sequence[int]) -> Taken | None:
        """Acquire all parts, or return the lease that could not be acquired and keep none.

        `memory` is MiB by device id. Raises ApiError; some parts may have been acquired then, so release all of them.
        """
        for place, part in enumerate(parts):
            async with self._lane(part.lease):
                taken = await self._take(part, memory, self.newest(part.lease))
            if taken is not None:
                await self.release(parts[:place])
                return taken
        return None

    async def restore(self, parts: Sequence[HoldPart], memory: Sequence[int]) -> Restored:
        """Acquire for a bound pod what it does not hold yet of these parts; what was acquired is kept. Raises ApiError.

        A lease that the watch has not delivered yet is no lease that is missing, so the API server is asked.
        """
        taken: Taken | None = None
        made = 0
        for part in parts:
            async with self._lane(part.lease):
                if _lists(self.newest(part.lease), part) or _lists(lease := await self._get(part.lease), part):
                    continue
                refused = await self._take(part, memory, lease)
                made += refused is None
                taken = refused or taken
        return Restored(taken, made)

    async def release(self, parts: Sequence[HoldPart]) -> None:
        """Release the leases of these parts, in reverse order. Raises ApiError after trying all of them."""
        failure: GanglineError | None = None
        for part in reversed(parts):
            try:
                async with self._lane(part.lease):
                    await self._give_back(part)
            except GanglineError as error:
                failure = error
        if failure is not None:
            raise failure

    async def drop(self, name: str, over: Mapping[str, Hold]) -> None:
        """Remove these holds from a lease, and delete it if none is left. Other changes of the lease are kept. Raises
        ApiError.

        A hold that differs from the given one stays: it is a newer one.
        """
        async with self._lane(name):
            await self._reduce(
                self.newest(name),
                lambda held: {holder: hold for holder, hold in held.items() if over.get(holder) != hold},
            )

    def newest(self, name: str) -> model.Lease | None:
        """A lease as this process wrote it last, else as the watch delivered it; None if there is none."""
        if (written := self._written.get(name)) is not None:
            return written
        seen = self._store.get(name, self.namespace)
        return None if seen is None or seen.metadata.uid == self._deleted.get(name) else seen

    async def live_pod(self, hold: Hold, uid: str) -> model.Pod | None:
        """The pod that the hold of the pod with a UID names, read from the API server. Raises ApiError.

        None if there is no pod of this name, or if it is known that the pod is gone.
        """
        namespace, _, name = hold.pod.partition("/")
        if not name or uid in self._gone:
            return None
        try:
            pod = await self._client.get(resources.PODS, name, namespace=namespace)
        except NotFound:
            pod = None
        if pod is None or pod.metadata.uid != uid:
            self._gone.keep(uid, None)
        return pod

    def on_upsert(self, lease: model.Lease) -> None:
        """The watch delivered a lease: what this process did before needs no more remembering.

        A new list may have a later version of the lease than the one that this process wrote.
        """
        name, metadata = lease.metadata.name, lease.metadata
        written = self._written.get(name)
        if written is not None and version_of(written.metadata) <= version_of(lease.metadata):
            del self._written[name]
        if self._deleted.get(name, metadata.uid) != metadata.uid:
            del self._deleted[name]

    def on_remove(self, lease: model.Lease) -> None:
        """A lease was deleted."""
        name, uid = lease.metadata.name, lease.metadata.uid
        if name in self._removed:
            self._removed[name].add(uid)
        written = self._written.get(name)
        if written is not None and written.metadata.uid == uid:
            del self._written[name]
        if self._deleted.get(name) == uid:
            del self._deleted[name]

    def _lane(self, name: str) -> asyncio.Lock:
        return self._lanes[hash(name) % _LANES]

    async def _take(self, part: HoldPart, memory: Sequence[int], lease: model.Lease | None) -> Taken | None:
        """Acquire a part, of whose lease `lease` is the newest that is known."""
        problem: GanglineError | None = None
        for _ in range(_ATTEMPTS):
            try:
                if lease is None:
                    await self._create(part)
                    return None
                return await self._join(part, lease, memory)
            except (Conflict, NotFound) as error:  # the lease has changed since it was read
                self._written.pop(part.lease, None)
                problem, lease = error, await self._get(part.lease)
        assert problem is not None
        raise problem

    async def _create(self, part: HoldPart) -> None:
        new = lease_of(part.lease, self.namespace, part.node, {part.uid: part.hold}, self._now())
        await self._write(part.lease, self._client.create(resources.LEASES, new, namespace=self.namespace))

    async def _join(self, part: HoldPart, lease: model.Lease, memory: Sequence[int]) -> Taken | None:
        """Add a hold to an existing lease, and remove holds that are over. Raises Conflict, NotFound."""
        holders = holders_of(lease)
        while rivals := in_the_way(part.uid, part.hold, holders, memory):
            over = [h for h in rivals if await self._is_over(h, holders[h], part.node)]
            if not over:
                return Taken(lease, rivals[0], holders[rivals[0]])
            for holder in over:
                del holders[holder]
        place = holder_for(part.uid, part.hold, holders)
        mine = holders.get(place)
        holders[place] = part.hold if mine is None else part.hold.after(mine)
        await self._replace(lease, part.node, holders)
        return None

    async def _is_over(self, holder: str, hold: Hold, node: str) -> bool:
        uid = uid_of(holder)
        has_ended = self.has_ended(hold)  # before the pod is read: from then on the attempt binds nothing
        pod = await self.live_pod(hold, uid)
        if is_over(hold, uid, node, pod, self._held(uid, node)):
            return True
        return has_ended and pod is not None and not pod.spec.node_name

    async def _give_back(self, part: HoldPart) -> None:
        by, known = part.hold.by, self.newest(part.lease)
        if known is None or all(hold.without(by) == hold for hold in holders_of(known).values()):
            known = await self._get(part.lease)  # a write whose answer was lost may have made the lease
        await self._reduce(
            known, lambda held: {holder: rest for holder, hold in held.items() if (rest := hold.without(by))}
        )

    async def _reduce(
        self, lease: model.Lease | None, left_of: Callable[[Mapping[str, Hold]], dict[str, Hold]]
    ) -> None:
        """Leave of a lease's holds what `left_of` leaves. Raises ApiError."""
        for _ in range(_ATTEMPTS):
            if lease is None:
                return
            holders = holders_of(lease)
            left, name = left_of(holders), lease.metadata.name
            try:
                return await self._leave(lease, left) if left != holders or not holders else None
            except NotFound:
                return
            except Conflict:
                self._written.pop(name, None)
                lease = await self._get(name)

    async def _leave(self, lease: model.Lease, holders: dict[str, Hold]) -> None:
        """Write the lease with these holders, or delete it if there are none."""
        metadata = lease.metadata
        if holders:
            await self._replace(lease, node_of(lease), holders)
            return
        self._written.pop(metadata.name, None)
        failpoint("lock.before-removal")
        with suppress(NotFound):
            await self._client.delete(
                resources.LEASES,
                metadata.name,
                namespace=self.namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        failpoint("lock.after-removal")
        seen = self._store.get(metadata.name, self.namespace)
        if seen is not None and seen.metadata.uid == metadata.uid:
            self._deleted[metadata.name] = metadata.uid

    async def _replace(self, lease: model.Lease, node: str, holders: dict[str, Hold]) -> None:
        name = lease.metadata.name
        new = lease_of(name, self.namespace, node, holders, self._now(), lease)
        await self._write(name, self._client.replace(resources.LEASES, new))

    async def _write(self, name: str, request: Coroutine[None, None, model.Lease]) -> None:
        """Write the lease with a name, and remember what was written, unless the watch was faster than the answer. The
        caller has the lease's lane, so that there is one request for it at a time.
        """
        removed = self._removed[name] = set()
        try:
            failpoint("lock.before-write")
            lease = await request
            failpoint("lock.after-write")
        finally:
            del self._removed[name]
        seen = self._store.get(name, self.namespace)
        is_newer = (
            lease.metadata.uid not in removed
            if seen is None
            else version_of(seen.metadata) < version_of(lease.metadata)
        )
        if is_newer:
            self._written[name] = lease

    async def _get(self, name: str) -> model.Lease | None:
        try:
            return await self._client.get(resources.LEASES, name, namespace=self.namespace)
        except NotFound:
            return None

    def _now(self) -> str:
        return rfc3339(self._clock.now(), micros=True)


def _lists(lease: model.Lease | None, part: HoldPart) -> bool:
    """Whether a lease names all devices of a part as held for its pod."""
    holders = holders_of(lease).items() if lease is not None else ()
    return any(
        uid_of(holder) == part.uid and hold.by and set(part.hold.ids) <= set(hold.ids) for holder, hold in holders
    )
