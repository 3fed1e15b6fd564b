"""Carries out a plan: removes lost members, and has the others evicted. Does the I/O.

Rules:
- A lost member is deleted, as kube-controller-manager would do later. Where nothing can run on its node any more, the
  deletion does not wait for the node's word. No budget protects it: it does not work.
- Other members are evicted through the Eviction API, so disruption budgets hold. They go first: as long as lost members
  are there, a scheduler that takes over sees that the gang has lost members, and what is left to do.
- After a failure to evict a member the lost ones stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any

from gangline import Conflict, GanglineError, Handle, NotFound, PodInfo, TooManyRequests, resources
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.removing import Remover, evict_patiently

REASON = "GangRecovery"
"""The reason in the condition DisruptionTarget."""
_AT_ONCE = 16


class Refused(GanglineError):
    """A disruption budget does not let a member go."""

    def __init__(self, pod: PodInfo, why: str) -> None:
        super().__init__(f"pod {pod.key} may not be evicted: {why}")


class Removing:
    """Removes pods of groups."""

    def __init__(self, handle: Handle, patience: float) -> None:
        self._handle = handle
        self._remover = Remover(handle)
        self._patience = patience

    def protected(self, pods: Sequence[PodInfo]) -> str:
        """Why disruption budgets do not let all of these pods go now; "" if they do."""
        violating, _ = Budgets(self._handle.state.store(resources.PDBS)).split(pods)
        if not violating:
            return ""
        others = f" and {len(violating) - 1} others" if len(violating) > 1 else ""
        return f"disruption budgets protect pod {violating[0].key}{others}"

    async def carry_out(
        self,
        lost: Sequence[PodInfo],
        dead: Collection[str],
        evicted: Sequence[PodInfo],
        why: str,
        lent: Sequence[PodInfo] = (),
    ) -> None:
        """Remove pods from lent spares, then evict members, then remove lost ones; nothing can run on `dead` nodes.

        Raises Refused and ApiError.
        """
        limit = asyncio.Semaphore(_AT_ONCE)
        await self._all(self._remove(pod, False, why, limit) for pod in lent)
        await self._all(self._evict(pod, limit) for pod in evicted)
        await self._all(self._remove(pod, pod.node_name in dead, why, limit) for pod in lost)

    async def _all(self, steps: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Take all steps at once; raises the first failure when all have ended."""
        for ended in await asyncio.gather(*steps, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _remove(self, pod: PodInfo, is_dead: bool, why: str, limit: asyncio.Semaphore) -> None:
        async with limit:
            await self._remover.remove(pod, REASON, why, 0 if is_dead else None)

    async def _evict(self, pod: PodInfo, limit: asyncio.Semaphore) -> None:
        handle, which = self._handle, (pod.namespace, pod.name, pod.uid)
        try:
            await evict_patiently(handle.client, handle.clock, which, self._patience, limit)
        except (NotFound, Conflict):
            return
        except TooManyRequests as error:
            raise Refused(pod, error.message) from None
