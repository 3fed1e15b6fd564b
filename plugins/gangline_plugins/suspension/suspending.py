"""Takes pods off their nodes by suspending their owners, and says which pods are left to be evicted one by one.

1. Each pod is marked as disrupted, as before any other removal.
2. The owner is suspended, and the record is written with it in one write. From here on any leader can go on.
3. The owner's controller deletes the pods. It does not count them as failed, and creates no new ones.
4. Pods that are still there after half a minute are left to be removed by the caller.
5. For a restart the owner is resumed as soon as its pods are going. If this process dies before that, or the write
   fails, the record stays, and the owner is resumed as any other.

A Workload of Kueue is resumed as for a restart in any case, when Kueue has taken its quota back: Kueue decides when it
is admitted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gangline import Handle, PodInfo, resources
from gangline_plugins.suspension.kueue import has_quota
from gangline_plugins.suspension.owning import OwnedPods, SuspendableOwner, whole_owners
from gangline_plugins.suspension.suspenders import Mark
from gangline_plugins.suspension.writing import OwnerWriter

_PATIENCE = 30.0
"""Seconds within which a controller has to delete the pods of a suspended owner."""
_LOOK = 0.1
"""Seconds between two looks at whether they are being deleted."""
_AT_ONCE = 16


class Suspending:
    """Suspends the owners of one profile's pods."""

    def __init__(
        self,
        handle: Handle,
        writer: OwnerWriter,
        until_resumed: str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`until_resumed` says in events when a suspended owner is resumed."""
        self._handle = handle
        self._writer = writer
        self._until_resumed = until_resumed
        self._sleep = sleep

    async def take_off(self, pods: Sequence[PodInfo], why: str, mark: Mark, is_restart: bool) -> list[PodInfo]:
        """See `Suspenders.take_off`."""
        limit = asyncio.Semaphore(_AT_ONCE)
        found = whole_owners(self._handle, pods)
        steps = (self._suspend(each, why, mark, is_restart, limit) for each in found)
        remaining: set[str] = set()
        for left in await asyncio.gather(*steps, return_exceptions=True):
            if isinstance(left, BaseException):
                raise left
            remaining.update(pod.uid for pod in left)
        suspended = {pod.uid for each in found for pod in each.pods} - remaining
        return [pod for pod in pods if pod.uid not in suspended]

    async def _suspend(
        self, owned: OwnedPods, why: str, mark: Mark, is_restart: bool, limit: asyncio.Semaphore
    ) -> Sequence[PodInfo]:
        """Suspend one owner; returns the pods that are not going."""
        owner = owned.owner
        priority = max(pod.priority for pod in owned.pods)
        for pod in owned.pods:
            async with limit:
                await mark(pod)
        if not await self._writer.suspend(owner, priority, why):
            return owned.pods
        until = "as soon as its pods are gone" if is_restart else self._until_resumed
        what = "Kueue admits it again by its own rules" if owner.is_of_kueue else f"resumed {until}"
        self._writer.tell(owner, "Normal", "SuspendedByScheduler", f"{why}; {what}")
        left = await self._staying(owned)
        if (is_restart or owner.is_of_kueue) and await self._writer.resume(owner, self._handle.profile):
            note = "room is kept for the next ones" if is_restart else "Kueue may admit it again"
            self._writer.tell(owner, "Normal", "ResumedByScheduler", f"its pods are going, and {note}")
        return left

    async def _staying(self, owned: OwnedPods) -> list[PodInfo]:
        """Wait until all of these pods are going; returns those that still are not when patience is over."""
        deadline = self._handle.clock.monotonic() + _PATIENCE
        while True:
            known = self._handle.state.pods
            left = [pod for pod in owned.pods if (now := known.get(pod.uid)) is not None and not now.terminating]
            is_over = not left and not self._has_quota(owned.owner)
            if is_over or self._handle.clock.monotonic() > deadline:
                return left
            await self._sleep(_LOOK)

    def _has_quota(self, owner: SuspendableOwner) -> bool:
        """Whether the owner is a Workload of which Kueue has not taken the quota back yet."""
        if not owner.is_of_kueue:
            return False
        found = self._handle.state.store(resources.KUEUE_WORKLOADS).get(owner.name, owner.namespace)
        return found is not None and found.metadata.uid == owner.uid and has_quota(found)
