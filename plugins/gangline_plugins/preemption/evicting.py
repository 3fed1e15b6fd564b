"""Carries out a preemption: takes nominations back, evicts the victims and says so. The only part with I/O.

Rules, as in kube-scheduler:
- A victim that is held at permit is rejected there; a victim that is being deleted is left alone.
- Every other one first gets the condition DisruptionTarget and is then deleted. That it is gone already is fine.
- The last victim goes when all others were accepted; after a failure nothing more is evicted, and the pod, which
  waits as unschedulable, preempts again when it is tried next.
- A preemption that has succeeded goes on until each victim is gone or known to be on its way out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gangline import ApiError, Conflict, GanglineError, Handle, NotFound, PatchKind, PodInfo, resources
from gangline_plugins.preemption.precedence import DISRUPTION_TARGET, PREEMPTION

log = logging.getLogger(__name__)
_AT_ONCE = 16
_PAUSES = (0.01, 0.05, 0.25)
"""Seconds before a condition is written once more."""
_MAY_PASS = frozenset((0, 409, 500, 503))
"""Failures after which that is worth it: no answer, conflict, internal error, unavailable."""


@dataclass(frozen=True, slots=True)
class Preemptor:
    """For whom room is made: a pod, or pods that belong together."""

    uid: str
    """What no other preemptor has."""
    name: str
    """What messages call it: "pod default/a"."""
    by: str
    """What the events of its victims call it."""
    priority: int
    scheduler_name: str
    nodes: tuple[str, ...]
    """Where the room is made."""
    members: frozenset[str]
    """The UIDs of its pods."""

    @classmethod
    def of(cls, pod: PodInfo, node: str) -> Preemptor:
        """A pod for which room is made on one node."""
        name, by = f"pod {pod.key}", f"pod {pod.uid}"
        return cls(pod.uid, name, by, pod.priority, pod.scheduler_name, (node,), frozenset((pod.uid,)))

    @property
    def place(self) -> str:
        """Where the room is made, for messages."""
        return f"node {self.nodes[0]}" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"


class Evictor:
    """Evicts victims and knows for whom it is doing so."""

    def __init__(self, handle: Handle, plugin: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._handle = handle
        self._plugin = plugin
        self._sleep = sleep
        self._running: dict[str, Sequence[PodInfo]] = {}

    def is_running(self, uid: str) -> bool:
        """Whether pods are still to be evicted for the preemptor with this UID."""
        return self._has_left(self._running.get(uid, ()))

    def start(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Evict in the background those victims that are not being deleted."""
        staying = [victim for victim in victims if not victim.terminating]
        if staying:
            self._running[preemptor.uid] = staying
            self._handle.spawn(lambda: self.evict(preemptor, staying))

    async def evict(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Make the room that a preemptor needs; failures are logged."""
        self._running = {uid: others for uid, others in self._running.items() if self._has_left(others)}
        self._running[preemptor.uid] = victims
        is_done = False
        try:
            await self._clear_nominations(preemptor)
            limit = asyncio.Semaphore(_AT_ONCE)
            async with asyncio.TaskGroup() as group:  # the first failure ends the others
                for victim in victims[:-1]:
                    group.create_task(self._preempt(preemptor, victim, limit))
            await self._preempt(preemptor, victims[-1], limit)
            is_done = True
        except* GanglineError as failures:
            for error in failures.exceptions:
                log.error("%s: preemption on %s: %s", preemptor.name, preemptor.place, error)
        finally:
            if not is_done:
                self._running.pop(preemptor.uid, None)

    def _has_left(self, victims: Sequence[PodInfo]) -> bool:
        """Whether one of these pods is there and not on its way out."""
        pods = self._handle.state.pods
        left = (pods.get(victim.uid) for victim in victims)
        return any(victim is not None and not victim.terminating for victim in left)

    async def _clear_nominations(self, preemptor: Preemptor) -> None:
        """Pods that come after the preemptor may no longer fit; they are to look for another place at once."""
        nominated = self._handle.nominated()
        others = [other for node in preemptor.nodes for other in nominated.get(node, {}).values()]
        for other in others:
            if other.uid not in preemptor.members and other.priority < preemptor.priority:
                try:
                    await self._patch_status(other, {"nominatedNodeName": None})
                except GanglineError as error:
                    log.error("pod %s: its nomination cannot be cleared: %s", other.key, error)

    async def _preempt(self, preemptor: Preemptor, victim: PodInfo, limit: asyncio.Semaphore) -> None:
        place = f"node {victim.node_name}" if victim.node_name else preemptor.place
        note = f"Preempted by {preemptor.by} on {place}"
        waiting = self._handle.waiting.get(victim.uid)
        if waiting is not None:
            waiting.reject(self._plugin, "preempted")
            note += " (in scheduler memory)."
        else:
            async with limit:
                if not await self._delete(preemptor, victim):
                    return
        self._handle.recorder.event(victim, "Normal", "Preempted", note, action="Preempting")

    async def _delete(self, preemptor: Preemptor, victim: PodInfo) -> bool:
        """Mark and delete a victim; False when it is gone, or another pod has its name. Raises ApiError."""
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION,
            "message": f"{preemptor.scheduler_name}: preempting to accommodate a higher priority pod",
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
