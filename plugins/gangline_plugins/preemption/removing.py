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

    The pod is given by namespace, name and UID. Each try is made within `limit`, and none of the pauses between them.
    Raises TooManyRequests when the time is over, and ApiError.
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
            await asyncio.sleep(error.retry_after or _AGAIN)


class Remover:
    """Marks and deletes pods."""

    def __init__(self, handle: Handle, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._handle = handle
        self._sleep = sleep

    async def remove(self, pod: PodInfo, reason: str, message: str, grace_period_seconds: int | None = None) -> bool:
        """Mark and delete a pod. False if the pod is gone, or a different pod has its name now. Raises ApiError.

        A grace period of 0 says that nothing of the pod runs any more, and nobody would write how it ended: it is
        marked as failed, as kube-controller-manager does it for pods of deleted nodes. Some Jobs wait for that.
        """
        condition = {"type": DISRUPTION_TARGET, "status": "True", "reason": reason, "message": message}
        is_over = grace_period_seconds == 0
        try:
            if is_over or not _has(pod, condition):
                moment = datetime.fromtimestamp(self._handle.clock.now(), UTC)
                condition["lastTransitionTime"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
                phase = {"phase": "Failed"} if is_over else {}
                await self.patch_status(pod, {**phase, "conditions": [condition]})
            await self._handle.client.delete(
                resources.PODS,
                pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                grace_period_seconds=grace_period_seconds,
            )
        except (NotFound, Conflict):
            return False
        return True

    async def patch_status(self, pod: PodInfo, status: dict[str, Any]) -> None:
        """Change the status of a pod; tried a few times where that may help. Raises ApiError."""
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        for pause in (*_PAUSES, None):
            try:
                await self._handle.client.patch(
                    resources.PODS,
                    pod.name,
                    patch,
                    namespace=pod.namespace,
                    subresource="status",
                    kind=PatchKind.STRATEGIC,
                )
                return
            except ApiError as error:
                if pause is None or error.status not in _MAY_PASS:
                    raise
            await self._sleep(pause)


def _has(pod: PodInfo, condition: dict[str, str]) -> bool:
    known = pod.conditions.get(condition["type"])
    return known is not None and (known.status, known.reason, known.message) == (
        condition["status"],
        condition["reason"],
        condition["message"],
    )
