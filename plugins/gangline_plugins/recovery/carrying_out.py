"""Carries out a plan: removes lost members, and has the others evicted. Does the I/O.

Rules:
- A lost member is deleted, as kube-controller-manager would do later. Where nothing can run on its node any more, the
  deletion does not wait for the node's word, and the pod is marked as failed, as kube-controller-manager marks the pods
  of such nodes: a Job with a pod failure policy waits for that. No budget protects it: it does not work. The API server
  is asked about the node just before, because the watch may not have told yet that it is back.
- Pods on spares that are lent to them are preempted.
- Other members are evicted through the Eviction API, so disruption budgets hold. They go first: as long as lost members
  are there, a scheduler that takes over sees that the gang has lost members, and what is left to do.
- A workload that has asked for it is suspended instead if all of its pods go and no budget forbids that; for a restart
  it is resumed at once.
- A write that fails for a reason that may pass is tried again. After a failure to evict a member the lost ones stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from gangline import Conflict, GanglineError, Handle, NotFound, PodInfo, TooManyRequests, failpoint, resources
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.precedence import PREEMPTION
from gangline_plugins.preemption.removing import Remover, evict_patiently
from gangline_plugins.recovery.losses import fault_of
from gangline_plugins.suspension.suspenders import Suspenders

REASON = "GangRecovery"
"""The reason in the condition DisruptionTarget of lost members."""
_AT_ONCE = 16


class Refused(GanglineError):
    """A disruption budget does not let a member go."""

    def __init__(self, pod: PodInfo, why: str) -> None:
        super().__init__(f"pod {pod.key} may not be evicted: {why}")


class Removing:
    """Removes pods of groups."""

    def __init__(self, handle: Handle, patience: float) -> None:
        """A write that fails for a reason that may pass is tried again for `patience` seconds."""
        self._handle = handle
        self._remover = Remover(handle, patience=patience)
        self._suspenders = handle.state.shared(Suspenders)
        self._patience = patience

    def protected(self, pods: Sequence[PodInfo]) -> str:
        """Why disruption budgets do not let all of these pods go now; "" if they do."""
        budgets = Budgets(self._handle.state.store(resources.PDBS))
        violating, _ = budgets.split(pods)
        violating = violating or budgets.covered_twice(pods)
        if not violating:
            return ""
        others = f" and {len(violating) - 1} others" if len(violating) > 1 else ""
        return f"disruption budgets protect pod {violating[0].key}{others}"

    async def carry_out(
        self,
        lost: Sequence[PodInfo],
        dead: Container[str],
        evicted: Sequence[PodInfo],
        why: str,
        lent: Sequence[PodInfo] = (),
        is_restart: bool = True,
    ) -> None:
        """Remove the pods on lent spares, then evict members, then remove lost members.

        Nothing can run on the nodes in `dead`, which is asked right before the lost members are removed. If workloads
        are suspended instead, they are resumed at once if `is_restart`. Raises Refused and ApiError.
        """
        limit = asyncio.Semaphore(_AT_ONCE)
        await self._all(self._remove(pod, False, PREEMPTION, why, limit) for pod in lent)
        left = await self._suspend(lost, evicted, why, is_restart)
        await self._all(self._evict(pod, limit) for pod in evicted if pod.uid in left)
        lost = [pod for pod in lost if pod.uid in left or pod.node_name in dead]
        await self._all(self._remove_lost(pod, pod.node_name in dead, why, limit) for pod in lost)

    async def _suspend(
        self, lost: Sequence[PodInfo], evicted: Sequence[PodInfo], why: str, is_restart: bool
    ) -> Collection[str]:
        """Suspend the workloads that ask for it, if all of their pods go and no budget protects one that works.

        Returns the UIDs of the pods that are left.
        """
        pods = [*lost, *evicted]
        if not evicted or self.protected(evicted):
            return {pod.uid for pod in pods}
        mark = partial(self._remover.mark, reason=REASON, message=why)
        return {pod.uid for pod in await self._suspenders.take_off(pods, why, mark, is_restart)}

    async def _all(self, steps: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Take all steps at the same time. When all have ended, raises the first failure."""
        for ended in await asyncio.gather(*steps, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _remove(self, pod: PodInfo, is_dead: bool, reason: str, why: str, limit: asyncio.Semaphore) -> None:
        async with limit:
            await self._remover.remove(pod, reason, why, is_dead)

    async def _remove_lost(self, pod: PodInfo, is_dead: bool, why: str, limit: asyncio.Semaphore) -> None:
        failpoint("recovery.before-removal")
        async with limit:
            is_dead = is_dead and await self._is_lost(pod.node_name)
        await self._remove(pod, is_dead, REASON, why, limit)
        failpoint("recovery.after-removal")

    async def _is_lost(self, node: str) -> bool:
        """Whether the node is lost by what the API server says now: the watch may be late, and the node may be back.

        False if the API server does not say. Then the deletion waits for the node's word, and is looked at again later.
        """
        try:
            live = await self._handle.client.get(resources.NODES, node)
        except NotFound:
            return True
        except GanglineError:
            return False
        why, _ = fault_of(live)
        return bool(why)

    async def _evict(self, pod: PodInfo, limit: asyncio.Semaphore) -> None:
        handle, which = self._handle, (pod.namespace, pod.name, pod.uid)
        failpoint("recovery.before-eviction")
        try:
            await evict_patiently(handle.client, handle.clock, which, self._patience, limit)
        except NotFound:
            return
        except (Conflict, TooManyRequests) as error:
            raise Refused(pod, error.message) from None
        failpoint("recovery.after-eviction")
