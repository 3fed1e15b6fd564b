"""The allocations that the watch has shown, and which of two claims keeps a device that both have.

The API server does not compare claims, so two schedulers may give one device to two of them. The watch shows the writes
to all claims in one order, the same to everybody. The allocation that was written first stays. A scheduler waits until
its watch has shown its own write: then it has seen every earlier one, and gives way to those.

For each allocation it is noted up to which resourceVersion the watch had shown all claims when it showed this one. The
allocation was written after that. If a new list shows two allocations at once, their order is not known: then the claim
in question gives way.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from gangline import InvalidObject, NodeView, model
from gangline.dra import SliceTable, Standing, Usage
from gangline.dra.usage import DeviceId
from gangline.quantity import milli
from gangline_plugins.versions import version_of

PoolId = tuple[str, str]
"""Driver and name of a pool."""


class _Shown(msgspec.Struct, frozen=True):
    """An allocation that the watch has shown."""

    claim: model.ResourceClaim
    after: int
    """The claim was written after this resourceVersion."""
    by: int
    """The claim was written at this resourceVersion or before."""


class Written:
    """The allocations in the store of claims, by device."""

    def __init__(self, store: Any, nodes: Callable[[], NodeView]) -> None:
        self._store = store
        self._nodes = nodes
        self._shown: dict[str, _Shown] = {}
        self._having: defaultdict[PoolId, dict[DeviceId, set[str]]] = defaultdict(dict)
        """By pool and device: the UIDs of the claims that have the device, or a share of it."""
        self._slices: defaultdict[PoolId, dict[str, model.ResourceSlice]] = defaultdict(dict)
        """The slices of each pool, by name."""
        store.subscribe(self)

    # The store

    def on_upsert(self, claim: model.ResourceClaim) -> None:
        """A claim was added or has changed."""
        uid = claim.metadata.uid
        before = self._shown.get(uid)
        if claim.status.allocation is None:
            self._drop(uid)
        elif before is not None and before.claim.status.allocation == claim.status.allocation:
            self._shown[uid] = _Shown(claim, before.after, before.by)
        else:
            self._drop(uid)
            self._shown[uid] = _Shown(claim, self._store.seen, version_of(claim.metadata))
            for device in _devices(claim):
                self._having[device[:2]].setdefault(device, set()).add(uid)

    def on_remove(self, claim: model.ResourceClaim) -> None:
        """A claim is gone."""
        self._drop(claim.metadata.uid)

    def _drop(self, uid: str) -> None:
        shown = self._shown.pop(uid, None)
        for device in _devices(shown.claim) if shown is not None else ():
            users = self._having[device[:2]][device]
            users.discard(uid)
            if not users:
                del self._having[device[:2]][device]
            if not self._having[device[:2]]:
                del self._having[device[:2]]

    def slice_changed(self, old: model.ResourceSlice | None, new: model.ResourceSlice | None) -> None:
        """A slice was added (`old` is None), has changed, or was deleted (`new` is None)."""
        if old is not None:
            pool = _pool_of(old)
            del self._slices[pool][old.metadata.name]
            if not self._slices[pool]:
                del self._slices[pool]
        if new is not None:
            self._slices[_pool_of(new)][new.metadata.name] = new

    # Questions

    def first(self, uid: str, version: int) -> model.ResourceClaim | None:
        """A claim that was first to get devices of the claim `uid`; None if the claim keeps all of its devices.

        `version` is the resourceVersion at which this process wrote the claim's allocation; 0 if another process wrote
        it. The store must have all changes up to that version.
        """
        mine = self._shown.get(uid)
        if mine is None:
            return None
        version = version or mine.by
        for device in _devices(mine.claim):
            earlier = self._earlier(self._having[device[:2]][device], uid, version)
            for other in earlier:
                if _takes_alone(mine.claim, device) or _takes_alone(other, device):
                    return other
            if earlier and self._is_too_much([mine.claim, *earlier], device):
                return earlier[0]
        return self._lacks_counters(mine.claim, version)

    async def has_shown(self, version: int, seconds: float) -> bool:
        """Wait until the watch has shown all changes up to a resourceVersion; False if not after so many seconds."""
        shown = asyncio.Event()
        end = self._store.when_seen(version, shown.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await shown.wait()
        finally:
            end()
        return shown.is_set()

    def having(self, device: DeviceId) -> list[model.ResourceClaim]:
        """The claims that have a device, or shares of it, by UID; not those that only observe it."""
        return [self._shown[uid].claim for uid in sorted(self._having.get(device[:2], {}).get(device, ()))]

    def came_before(self, first: str, second: str) -> bool:
        """Whether it is certain for everybody in which order two allocations were written."""
        earlier, later = self._shown.get(first), self._shown.get(second)
        return earlier is not None and later is not None and earlier.by <= later.after

    def _earlier(self, uids: set[str], uid: str, version: int) -> list[model.ResourceClaim]:
        """The claims among these, but for the claim `uid`, that may have been written before a version."""
        return [self._shown[other].claim for other in sorted(uids - {uid}) if self._shown[other].after < version]

    def _lacks_counters(self, claim: model.ResourceClaim, version: int) -> model.ResourceClaim | None:
        """An earlier claim with devices of a pool that lacks counters for those of this claim and all earlier ones."""
        for pool in {device[:2] for device in _devices(claim)}:
            offered = [each for _, each in sorted(self._slices.get(pool, {}).items())]
            if not any(each.spec.shared_counters for each in offered):
                continue
            earlier = self._earlier(set().union(*self._having[pool].values()), claim.metadata.uid, version)
            table = SliceTable(offered, self._nodes())
            standing = Standing(table, Usage([claim, *earlier]))
            seen = [placed for several in table.placed_with.values() for placed in several]
            if earlier and any(min(standing.left(each).values(), default=0) < 0 for each in seen):
                return earlier[0]
        return None

    def _is_too_much(self, claims: list[model.ResourceClaim], device: DeviceId) -> bool:
        """Whether the shares of these claims consume more of a device than it has."""
        offered: dict[int, Mapping[str, model.DeviceCapacity]] = {}
        for each in self._slices.get(device[:2], {}).values():
            for found in each.spec.devices:
                if found.name == device[2]:
                    offered[each.spec.pool.generation] = found.capacity
        capacity = offered[max(offered)] if offered else {}
        try:
            return any(
                key in capacity and amount > milli(capacity[key].value)
                for key, amount in Usage(claims).consumed.get(device, {}).items()
            )
        except InvalidObject:
            return True


def _devices(claim: model.ResourceClaim) -> dict[DeviceId, None]:
    """The devices that a claim has, or has shares of; not those that it only observes."""
    return dict.fromkeys(
        (each.driver, each.pool, each.device) for each in claim.status.results if not each.admin_access
    )


def _takes_alone(claim: model.ResourceClaim, device: DeviceId) -> bool:
    return device in Usage([claim]).taken


def _pool_of(each: model.ResourceSlice) -> PoolId:
    return each.spec.driver, each.spec.pool.name
