"""Carries out a preemption: takes nominations back, evicts the victims and says so. The only part with I/O.

Rules, as in kube-scheduler:
- A victim that is held at permit is rejected there; a victim that is being deleted is left alone.
- Every other one first gets the condition DisruptionTarget and is then deleted. That it is gone already is fine.
- The last victim goes when all others were accepted; after a failure nothing more is evicted, and the pod, which
  waits as unschedulable, preempts again when it is tried next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from gangline import ApiError, Conflict, GanglineError, Handle, NotFound, PatchKind, PodInfo, resources
from gangline_plugins.default_preemption.eligibility import DISRUPTION_TARGET, PREEMPTION, may_preempt

log = logging.getLogger(__name__)
_AT_ONCE = 16
_PAUSES = (0.01, 0.05, 0.25)
"""Seconds before a condition is written once more."""
_MAY_PASS = frozenset((0, 409, 500, 503))
"""Failures after which that is worth it: no answer, conflict, internal error, unavailable."""


class Evictor:
    """Evicts victims and knows for whom it is doing so."""

    def __init__(self, handle: Handle, plugin: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._handle = handle
        self._plugin = plugin
        self._sleep = sleep
        self._running: dict[str, Sequence[PodInfo]] = {}

    def is_running(self, uid: str) -> bool:
        """Whether pods are still to be evicted for the pod with this UID."""
        pods = self._handle.state.pods
        left = (pods.get(victim.uid) for victim in self._running.get(uid, ()))
        return any(victim is not None and not victim.terminating for victim in left)

    def start(self, pod: PodInfo, node: str, victims: Sequence[PodInfo]) -> None:
        """Evict in the background those victims that are not being deleted."""
        staying = [victim for victim in victims if not victim.terminating]
        if staying:
            self._handle.spawn(lambda: self.evict(pod, node, staying))

    async def evict(self, pod: PodInfo, node: str, victims: Sequence[PodInfo]) -> None:
        """Make the room on node that pod needs; failures are logged."""
        self._running[pod.uid] = victims
        try:
            await self._clear_nominations(pod, node)
            limit = asyncio.Semaphore(_AT_ONCE)
            async with asyncio.TaskGroup() as group:  # the first failure ends the others
                for victim in victims[:-1]:
                    group.create_task(self._preempt(pod, node, victim, limit))
            await self._preempt(pod, node, victims[-1], limit)
        except* GanglineError as failures:
            for error in failures.exceptions:
                log.error("pod %s: preemption on node %s: %s", pod.key, node, error)
        finally:
            self._running.pop(pod.uid, None)

    async def _clear_nominations(self, pod: PodInfo, node: str) -> None:
        """Pods that come after pod may no longer fit on node; they are to look for another place at once."""
        for other in list(self._handle.nominated().get(node, {}).values()):
            if other.uid != pod.uid and may_preempt(pod, other):
                try:
                    await self._patch_status(other, {"nominatedNodeName": None})
                except GanglineError as error:
                    log.error("pod %s: its nomination to node %s cannot be cleared: %s", other.key, node, error)

    async def _preempt(self, pod: PodInfo, node: str, victim: PodInfo, limit: asyncio.Semaphore) -> None:
        note = f"Preempted by pod {pod.uid} on node {node}"
        waiting = self._handle.waiting.get(victim.uid)
        if waiting is not None:
            waiting.reject(self._plugin, "preempted")
            note += " (in scheduler memory)."
        else:
            async with limit:
                if not await self._delete(pod, victim):
                    return
        self._handle.recorder.event(victim, "Normal", "Preempted", note, action="Preempting")

    async def _delete(self, pod: PodInfo, victim: PodInfo) -> bool:
        """Mark and delete a victim; False when it is gone, or another pod has its name. Raises ApiError."""
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION,
            "message": f"{pod.scheduler_name}: preempting to accommodate a higher priority pod",
        }
        try:
            if not _has(victim, condition):
                moment = datetime.fromtimestamp(self._handle.clock.now(), UTC)
                condition["lastTransitionTime"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
                await self._patch_status(victim, {"conditions": [condition]})
            await self._handle.client.delete(resources.PODS, victim.name, namespace=victim.namespace, uid=victim.uid)
        except (NotFound, Conflict):
            return False
        return True

    async def _patch_status(self, pod: PodInfo, status: dict[str, Any]) -> None:
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
