"""Carries out a preemption: clears nominations, evicts the victims and records events. Does I/O, as `removing` does.

Rules, as in kube-scheduler:
- A victim that waits at permit is rejected there. A victim that is being deleted is left alone.
- Every other victim first gets the condition DisruptionTarget. When all have it, they are deleted. A victim that is
  already gone is no failure. A workload that has asked for it is suspended instead, if all of its pods are victims.
- The last victim is deleted after all other deletions were accepted. After a failure nothing more is evicted; the
  waiting pod preempts again at its next attempt.
- What is left of a gang is evicted even if the scheduler is killed meanwhile or a write fails; see `finishing`.
- A successful preemption lasts until each victim is gone or is known to be terminating.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from gangline import GanglineError, Handle, PodInfo, failpoint
from gangline_plugins.preemption.evictions import Evictions
from gangline_plugins.preemption.finishing import unfinished
from gangline_plugins.preemption.precedence import DISRUPTION_TARGET, PREEMPTION
from gangline_plugins.preemption.removing import Remover
from gangline_plugins.suspension.suspenders import Suspenders

log = logging.getLogger(__name__)
_AT_ONCE = 16
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds after a failure until evictions that are not finished go on."""


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

    @classmethod
    def unknown(cls, victim: PodInfo) -> Preemptor:
        """The preemptor of a victim that is marked, if nothing else is known of the preemptor."""
        scheduler_name = victim.conditions[DISRUPTION_TARGET].message.partition(": ")[0]
        name, by = f"preemptor of pod {victim.key}", "a pod of a higher priority"
        return cls(f"of {victim.uid}", name, by, victim.priority + 1, scheduler_name, (), frozenset())

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
        self._sleep = sleep
        self._failed = asyncio.Event()
        handle.run(self.finish)

    def is_running(self, uid: str) -> bool:
        """Whether some victims of the preemptor with this UID still have to be evicted."""
        victims = self._running.get(uid)
        return victims is not None and self._has_left(victims)

    def start(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        """Evict in the background those victims that are not being deleted."""
        staying = [victim for victim in victims if not victim.terminating]
        if staying:
            self._running[preemptor.uid] = staying
            self._evictions.begin(staying)
            self._handle.spawn(lambda: self.evict(preemptor, staying))

    async def finish(self) -> None:
        """Evict what is left of gangs whose eviction is not finished, until cancelled: at the beginning, and after each
        failure.
        """
        pause = _SHORTEST_PAUSE
        while True:
            self._failed.clear()
            for key, members in (await unfinished(self._handle, self._evictions.under_way)).items():
                log.warning("gang %s was evicted in part: %d members are left, and are evicted now", key, len(members))
                self._evictions.begin(members)
                await self.evict(Preemptor.unknown(members[0]), members)
            pause = min(2 * pause, _LONGEST_PAUSE) if self._failed.is_set() else _SHORTEST_PAUSE
            await self._failed.wait()
            await self._sleep(pause)

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
                self._failed.set()

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
                self._tell(preemptor, victim)
        return left

    async def _mark(self, preemptor: Preemptor, victim: PodInfo) -> bool:
        return await self._remover.mark(victim, PREEMPTION, _message(preemptor))

    async def _preempt_all(self, preemptor: Preemptor, victims: Sequence[PodInfo]) -> None:
        limit = asyncio.Semaphore(_AT_ONCE)
        placed = [victim for victim in victims if not self._is_rejected(preemptor, victim)]
        gone: set[str] = set()

        async def mark(victim: PodInfo) -> None:
            async with limit:
                if not await self._mark(preemptor, victim):
                    gone.add(victim.uid)

        async def delete(victim: PodInfo) -> None:
            async with limit:
                failpoint("preemption.before-removal")
                if await self._remover.delete(victim):
                    self._tell(preemptor, victim)
                failpoint("preemption.after-removal")

        await _each(placed, mark)
        placed = [victim for victim in placed if victim.uid not in gone]
        await _each(placed[:-1], delete)
        await _each(placed[-1:], delete)

    def _is_rejected(self, preemptor: Preemptor, victim: PodInfo) -> bool:
        """Whether the victim waited at permit: it is rejected there, and has no node any more."""
        waiting = self._handle.waiting.get(victim.uid)
        if waiting is None:
            return False
        waiting.reject(self._plugin, "preempted")
        self._evictions.end((victim,))
        self._tell(preemptor, victim, " (in scheduler memory).")
        return True

    def _tell(self, preemptor: Preemptor, victim: PodInfo, more: str = "") -> None:
        note = f"Preempted by {preemptor.named_to((victim,))} on {_place(preemptor, victim)}{more}"
        self._handle.recorder.event(victim, "Normal", "Preempted", note, action="Preempting")


async def _each(victims: Sequence[PodInfo], work: Callable[[PodInfo], Coroutine[Any, Any, None]]) -> None:
    """Do the work for all victims at the same time. The first failure ends the others. Raises ExceptionGroup."""
    async with asyncio.TaskGroup() as group:
        for victim in victims:
            group.create_task(work(victim))


def _place(preemptor: Preemptor, victim: PodInfo) -> str:
    return f"node {victim.node_name}" if victim.node_name else preemptor.place


def _message(preemptor: Preemptor) -> str:
    return f"{preemptor.scheduler_name}: preempting to accommodate a higher priority pod"
