"""Removes pods that a scheduler has to remove: marks each as disrupted, and then deletes it.

The condition DisruptionTarget tells owners that the pod is not to blame: a pod failure policy of a Job may ignore it.
"""

from __future__ import annotations

import asyncio
import itertools
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
    resources,
)
from gangline_plugins.preemption.precedence import DISRUPTION_TARGET
from gangline_plugins.retrying import MAY_PASS

_AGAIN = 1.0
"""Seconds until a patient write is tried again, unless the API server names a time."""
_LONGEST_PAUSE = 5.0
"""Seconds until it is tried again at most, whatever the API server asks for: room is kept meanwhile."""
_PAUSES = (0.01, 0.05, 0.25)
"""Seconds to wait before the first retries of a write."""


async def evict_patiently(
    client: Client,
    clock: Clock,
    pod: tuple[str, str, str],
    patience: float,
    limit: AbstractAsyncContextManager[Any] | None = None,
) -> None:
    """Have a pod evicted as far as disruption budgets allow it, and ask again for so many seconds if that may help.

    The API server marks the pod with the condition. The pod is given by namespace, name and UID. Each try is made
    within `limit`, and none of the pauses between them. Raises NotFound if the pod is gone, also if another pod has its
    name, the last failure when the time is over, for example TooManyRequests, and ApiError.
    """
    deadline = clock.monotonic() + patience
    while True:
        try:
            async with limit or nullcontext():
                await client.evict(*pod)
            return
        except MAY_PASS as error:
            if await _is_gone(client, pod, error):
                raise NotFound(
                    404, "NotFound", f"pod {pod[0]}/{pod[1]} is gone, and another one has its name"
                ) from None
            left = deadline - clock.monotonic()
            if left <= 0:
                raise
            pause = min(left, error.retry_after or _AGAIN)
        await asyncio.sleep(pause)


async def _is_gone(client: Client, pod: tuple[str, str, str], error: ApiError) -> bool:
    """Whether a write has failed because a pod, given by namespace, name and UID, is gone. Raises ApiError.

    A Conflict may also mean that somebody else wrote the pod at the same moment, so the pod is read again then.
    """
    if not isinstance(error, Conflict):
        return False
    namespace, name, uid = pod
    try:
        found = await client.get(resources.PODS, name, namespace=namespace)
    except NotFound:
        return True
    except MAY_PASS:
        return False
    return found.metadata.uid != uid


class Remover:
    """Marks and deletes pods."""

    def __init__(
        self, handle: Handle, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, patience: float = 0.0
    ) -> None:
        """A write that fails is tried a few times, and then again and again for `patience` seconds."""
        self._handle = handle
        self._sleep = sleep
        self._patience = patience

    async def remove(self, pod: PodInfo, reason: str, message: str, is_dead: bool = False) -> bool:
        """Mark and delete a pod. False if the pod is gone, or a different pod has its name now. Raises ApiError.

        With `is_dead` nothing can run on the pod's node any more. No kubelet will say how such a pod has ended, and
        controllers that wait for that word would wait for long, so the pod is marked as failed and leaves at once.
        """
        return await self.mark(pod, reason, message, is_dead) and await self.delete(pod, is_dead)

    async def delete(self, pod: PodInfo, is_dead: bool = False) -> bool:
        """Delete a pod that is marked; see `remove`. Raises ApiError."""
        return await self._written(pod, lambda: self._delete(pod, 0 if is_dead else None))

    async def mark(self, pod: PodInfo, reason: str, message: str, is_dead: bool = False) -> bool:
        """Say in a pod's status that it is about to be removed, and why. False if the pod is gone. Raises ApiError."""
        status = self._status(pod, reason, message, is_dead)
        return not status or await self._written(pod, lambda: self._patch_status(pod, status))

    async def patch_status(self, pod: PodInfo, status: dict[str, Any]) -> None:
        """Change the status of a pod if it still exists; tried again where that may help. Raises ApiError."""
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
        """Make a write, again where that may help; False if the pod does not exist any more. Raises ApiError."""
        which, clock = (pod.namespace, pod.name, pod.uid), self._handle.clock
        deadline = clock.monotonic() + self._patience
        for least in itertools.chain(_PAUSES, itertools.repeat(None)):
            try:
                await write()
                return True
            except NotFound:
                return False
            except MAY_PASS as error:
                if await _is_gone(self._handle.client, which, error):
                    return False
                if least is None and clock.monotonic() >= deadline:
                    raise
                pause = max(_AGAIN if least is None else least, error.retry_after or 0.0)
            await self._sleep(min(pause, _LONGEST_PAUSE))
        return False


def _has(pod: PodInfo, condition: dict[str, str]) -> bool:
    known = pod.conditions.get(condition["type"])
    return known is not None and (known.status, known.reason, known.message) == (
        condition["status"],
        condition["reason"],
        condition["message"],
    )
