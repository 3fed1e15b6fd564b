"""Carries out a preemption: clears nominations, evicts the victims and records events. Does I/O, as `removing` does.

Rules, as in kube-scheduler:
- A victim that waits at permit is rejected there. A victim that is being deleted is left alone.
- Every other victim first gets the condition DisruptionTarget and is then deleted. A victim that is already gone is no
  failure. A workload that has asked for it is suspended instead, if all of its pods are victims.
- The last victim is evicted after all others were accepted. After a failure nothing more is evicted; the waiting pod
  preempts again at its next attempt.
- A successful preemption lasts until each victim is gone or is known to be terminating.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import msgspec

from gangline import GanglineError, Handle, PodInfo
from gangline_plugins.preemption.evictions import Evictions
from gangline_plugins.preemption.precedence import PREEMPTION
from gangline_plugins.preemption.removing import Remover
from gangline_plugins.suspension.suspenders import Suspenders

log = logging.getLogger(__name__)
_AT_ONCE = 16


class Preemptor(msgspec.Struct, frozen=True):
    """The pod or the group for which room is made."""

    uid: str
    """An identifier that no other preemptor has."""
    name: str
    """The name of the preemptor in log messages, for example "pod default/a"."""
    by: str
    """The name of the preemptor in the events of its victims. A pod is named by its UID, as by kube-scheduler."""
    priority: int
    scheduler_name: str
    nodes: tuple[str, ...]
    """The nodes on which room is made."""
    members: frozenset[str]
    """The UIDs of its pods."""
    namespace: str = ""
    """The namespace in whose events alone `by` may stand; "" if every namespace may read it."""

    @classmethod
    def of(cls, pod: PodInfo, node: str) -> Preemptor:
        """A preemptor that is one pod, for which room is made on one node."""
        name, by = f"pod {pod.key}", f"pod {pod.uid}"
        return cls(pod.uid, name, by, pod.priority, pod.scheduler_name, (node,), frozenset((pod.uid,)))

    def named_to(self, victims: Iterable[PodInfo]) -> str:
        """The name of the preemptor in what is said to all who may see these victims."""
        is_known = not self.namespace or all(victim.namespace == self.namespace for victim in victims)
        return self.by if is_known else "a gang of another namespace"

    @property
    def place(self) -> str:
        """The nodes on which room is made, in words."""
        return f"node {self.nodes[0]}" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"


class Evictor:
    """Evicts victims, and knows for which preemptors evictions are running."""

    def __init__(self, handle: Handle, plugin: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._handle = handle
        self._plugin = plugin
        self._remover = Remover(handle, sleep)
        self._running: dict[str, Sequence[PodInfo]] = {}
        self._evictions = handle.state.shared(Evictions, handle.state)
        self._suspenders = handle.state.shared(Suspenders)

    def is_running(self, uid: str) -> bool:
        """Whether some victims of the preemptor with this UID still have to be evicted."""
        return self._has_left(self._running.get(uid, ()))

    def start(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Evict in the background those victims that are not being deleted."""
        staying = [victim for victim in victims if not victim.terminating]
        if staying:
            self._running[preemptor.uid] = staying
            self._evictions.begin(staying)
            self._handle.spawn(lambda: self.evict(preemptor, staying))

    async def evict(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Evict the victims of a preemptor; failures are logged."""
        self._running = {uid: others for uid, others in self._running.items() if self._has_left(others)}
        self._running[preemptor.uid] = victims
        is_done = False
        try:
            await self._clear_nominations(preemptor)
            await self._preempt_all(preemptor, await self._suspend(preemptor, victims))
            is_done = True
        except* GanglineError as failures:
            for error in failures.exceptions:
                log.error("%s: preemption on %s: %s", preemptor.name, preemptor.place, error)
        finally:
            if not is_done:
                self._running.pop(preemptor.uid, None)
                self._evictions.end(victims)

    def _has_left(self, victims: Sequence[PodInfo]) -> bool:
        """Whether one of these pods still exists and is not terminating."""
        pods = self._handle.state.pods
        left = (pods.get(victim.uid) for victim in victims)
        return any(victim is not None and not victim.terminating for victim in left)

    async def _clear_nominations(self, preemptor: Preemptor) -> None:
        """Clear the nominations of lower-priority pods to the preemptor's nodes: they may no longer fit, and look for
        another node at once.
        """
        nominated = self._handle.nominated()
        others = [other for node in preemptor.nodes for other in nominated.get(node, {}).values()]
        for other in others:
            if not other.is_anew and other.uid not in preemptor.members and other.priority < preemptor.priority:
                try:
                    await self._remover.patch_status(other, {"nominatedNodeName": None})
                except GanglineError as error:
                    log.error("pod %s: its nomination cannot be cleared: %s", other.key, error)

    async def _suspend(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> Sequence[PodInfo]:
        """Suspend the workloads that have asked for it and of which all pods are victims; returns the other victims."""
        why = f"preempted by {preemptor.named_to(victims)}"
        left = await self._suspenders.take_off(victims, why, partial(self._mark, preemptor))
        uids = {pod.uid for pod in left}
        for victim in victims:
            if victim.uid not in uids:
                note = f"Preempted by {preemptor.named_to((victim,))} on {_place(preemptor, victim)}"
                self._handle.recorder.event(victim, "Normal", "Preempted", note, action="Preempting")
        return left

    async def _mark(self, preemptor: Preemptor, victim: PodInfo) -> None:
        await self._remover.mark(victim, PREEMPTION, _message(preemptor))

    async def _preempt_all(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        limit = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:  # the first failure ends the others
            for victim in victims[:-1]:
                group.create_task(self._preempt(preemptor, victim, limit))
        for last in victims[-1:]:
            await self._preempt(preemptor, last, limit)

    async def _preempt(self, preemptor: Preemptor, victim: PodInfo, limit: asyncio.Semaphore) -> None:
        note = f"Preempted by {preemptor.named_to((victim,))} on {_place(preemptor, victim)}"
        waiting = self._handle.waiting.get(victim.uid)
        if waiting is not None:
            waiting.reject(self._plugin, "preempted")
            self._evictions.end((victim,))
            note += " (in scheduler memory)."
        else:
            async with limit:
                if not await self._remover.remove(victim, PREEMPTION, _message(preemptor)):
                    return
        self._handle.recorder.event(victim, "Normal", "Preempted", note, action="Preempting")


def _place(preemptor: Preemptor, victim: PodInfo) -> str:
    return f"node {victim.node_name}" if victim.node_name else preemptor.place


def _message(preemptor: Preemptor) -> str:
    return f"{preemptor.scheduler_name}: preempting to accommodate a higher priority pod"
