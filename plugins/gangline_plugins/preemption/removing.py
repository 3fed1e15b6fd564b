"""Removes pods that a scheduler has to remove: marks each as disrupted, and then deletes it.

The condition DisruptionTarget tells owners that the pod is not to blame: a pod failure policy of a Job may ignore it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any

from gangline import (
    ApiError,
    Client,
    Clock,
    Conflict,
    Handle,
    NotFound,
    PatchKind,
    PodInfo,
    TooManyRequests,
    resources,
)
from gangline_plugins.preemption.precedence import DISRUPTION_TARGET

_AGAIN = 1.0
"""Seconds until an eviction that a budget forbids is tried again, unless the API server names a time."""
_PAUSES = (0.01, 0.05, 0.25)
"""Seconds to wait before each retry of writing a condition."""
_MAY_PASS = frozenset((0, 409, 500, 503))
"""The statuses after which a write is retried: no answer, conflict, internal error, unavailable."""


async def evict_patiently(
    client: Client,
    clock: Clock,
    pod: tuple[str, str, str],
    patience: float,
    limit: AbstractAsyncContextManager[Any] | None = None,
) -> None:
    """Have a pod evicted as far as disruption budgets allow it, and ask again for so many seconds if one does not now.

    The API server marks the pod with the condition. The pod is given by namespace, name and UID. Each try is made
    within `limit`, and none of the pauses between them. Raises Conflict if another pod has its name, TooManyRequests
    when the time is over, and ApiError.
    """
    deadline = clock.monotonic() + patience
    while True:
        try:
            async with limit or nullcontext():
                await client.evict(*pod)
            return
        except TooManyRequests as error:
            if clock.monotonic() > deadline:
                raise
            pause = error.retry_after or _AGAIN
        except Conflict:  # another pod has the name, or somebody else wrote the pod at the same moment
            if clock.monotonic() > deadline or not await _is_there(client, pod):
                raise
            pause = _AGAIN
        await asyncio.sleep(pause)


async def _is_there(client: Client, pod: tuple[str, str, str]) -> bool:
    """Whether a pod exists, given by namespace, name and UID. Raises ApiError."""
    namespace, name, uid = pod
    try:
        found = await client.get(resources.PODS, name, namespace=namespace)
    except NotFound:
        return False
    return found.metadata.uid == uid


class Remover:
    """Marks and deletes pods."""

    def __init__(self, handle: Handle, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._handle = handle
        self._sleep = sleep

    async def remove(self, pod: PodInfo, reason: str, message: str, is_dead: bool = False) -> bool:
        """Mark and delete a pod. False if the pod is gone, or a different pod has its name now. Raises ApiError.

        With `is_dead` nothing can run on the pod's node any more. No kubelet will say how such a pod has ended, and
        controllers that wait for that word would wait for long, so the pod is marked as failed and leaves at once.
        """
        if not await self.mark(pod, reason, message, is_dead):
            return False
        return await self._written(pod, lambda: self._delete(pod, 0 if is_dead else None))

    async def mark(self, pod: PodInfo, reason: str, message: str, is_dead: bool = False) -> bool:
        """Say in a pod's status that it is about to be removed, and why. False if the pod is gone. Raises ApiError."""
        status = self._status(pod, reason, message, is_dead)
        return not status or await self._written(pod, lambda: self._patch_status(pod, status))

    async def patch_status(self, pod: PodInfo, status: dict[str, Any]) -> None:
        """Change the status of a pod if it still exists; tried a few times where that may help. Raises ApiError."""
        await self._written(pod, lambda: self._patch_status(pod, status))

    def _status(self, pod: PodInfo, reason: str, message: str, is_dead: bool) -> dict[str, Any]:
        """What is to be written into the status of a pod before it is deleted; empty if all of it is there."""
        condition = {"type": DISRUPTION_TARGET, "status": "True", "reason": reason, "message": message}
        if _has(pod, condition) and not is_dead:
            return {}
        moment = datetime.fromtimestamp(self._handle.clock.now(), UTC)
        condition["lastTransitionTime"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"conditions": [condition], **({"phase": "Failed"} if is_dead else {})}

    async def _patch_status(self, pod: PodInfo, status: dict[str, Any]) -> None:
        await self._handle.client.patch(
            resources.PODS,
            pod.name,
            {"metadata": {"uid": pod.uid}, "status": status},
            namespace=pod.namespace,
            subresource="status",
            kind=PatchKind.STRATEGIC,
        )

    async def _delete(self, pod: PodInfo, grace_period_seconds: int | None) -> None:
        await self._handle.client.delete(
            resources.PODS,
            pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            grace_period_seconds=grace_period_seconds,
        )

    async def _written(self, pod: PodInfo, write: Callable[[], Awaitable[None]]) -> bool:
        """Make a write, a few times where that may help; False if the pod does not exist any more. Raises ApiError."""
        which = pod.namespace, pod.name, pod.uid
        for pause in (*_PAUSES, None):
            try:
                await write()
                return True
            except NotFound:
                return False
            except ApiError as error:
                if error.status not in _MAY_PASS:
                    raise
                if isinstance(error, Conflict) and not await _is_there(self._handle.client, which):
                    return False
                if pause is None:
                    raise
            await self._sleep(pause)
        return False


def _has(pod: PodInfo, condition: dict[str, str]) -> bool:
    known = pod.conditions.get(condition["type"])
    return known is not None and (known.status, known.reason, known.message) == (
        condition["status"],
        condition["reason"],
        condition["message"],
    )
