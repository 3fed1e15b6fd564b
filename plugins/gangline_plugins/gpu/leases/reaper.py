"""Deletes leases that no pod needs: the pod was deleted, has ended, was created anew or is on another node.

A waiting pod's lease is freed when the attempt that wrote it has ended, when its scheduler was elected and is no longer
the leader, or when nobody has touched it for ABANDONED seconds. A node that is gone may come back with its pods: their
leases stay until the pods are deleted.

The reaper checks the leases of a pod at once when the pod has left its node. If the pod has no node here, the reaper
checks every GLANCE seconds, because the watch does not tell when such a pod is deleted. It checks all leases every
SWEEP seconds. Watched objects only raise a suspicion: the reaper asks the API server before it frees a device. What
fails is tried again soon; see `retrying`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from gangline import LANDING, GanglineError, Handle, custom_resources, model, resources, texts
from gangline_plugins.gpu.leases.book import Key, LeaseBook
from gangline_plugins.gpu.leases.holds import Hold, HoldPart, holders_of, is_over, node_of, uid_of
from gangline_plugins.gpu.leases.leaders import Leaders
from gangline_plugins.gpu.leases.locks import Locks
from gangline_plugins.gpu.leases.retrying import Retries

log = logging.getLogger(__name__)

SWEEP = 30.0
"""Seconds between two checks of all leases."""
GLANCE = 0.8
"""Seconds for which a lease may exist before its pod is known here, and then between two checks of it."""
ABANDONED = 300.0
"""Seconds after which the untouched lease of a waiting pod is freed: its scheduler has died or is cut off, and no other
has bound the pod.
"""
BIND_WITHIN = 210.0
"""Seconds from the moment when an attempt begins to lock its devices, in which the binding may be sent. With the time
that the API server may take for a request, that is well below ABANDONED.
"""
BREATH = 256
"""Leases that are checked before other tasks get their turn; a large cluster has tens of thousands."""
_AT_ONCE = 16
T = TypeVar("T")
LivePods = dict[str, model.Pod | None]
"""NAMESPACE/NAME to the pod as the API server returned it a moment ago."""


class Reaper:
    """Frees the leases in one namespace."""

    def __init__(self, handle: Handle, locks: Locks, book: LeaseBook) -> None:
        self._handle = handle
        self._locks = locks
        self._book = book
        self._store = handle.state.store(resources.LEASES)
        self._wake = asyncio.Event()
        self._owing: Retries[str] = Retries(handle.clock)
        """Attempts whose leases could not be released."""
        self._unchecked: Retries[str] = Retries(handle.clock)
        """Names of leases that could not be checked or freed."""
        self._first_seen: dict[tuple[str, str], float] = {}
        """When holds of waiting pods were first seen, by lease and attempt."""
        self._died: dict[str, float] = {}
        """When it was first seen that the scheduler of a hold leads no more, by attempt."""
        self._leaders = Leaders(handle.client, handle.clock)
        self._unplaced: frozenset[str] = frozenset()
        """UIDs of pods that had leases and no node here at the last check."""
        book.wakers.append(self._wake.set)
        handle.state.at_end(lambda: book.wakers.remove(self._wake.set))

    async def run(self) -> None:
        """Free leases until cancelled."""
        self._book.reapers += 1
        self._book.formers(self._handle.term.name)
        try:
            await self._work()
        finally:
            self._book.reapers -= 1
            if not self._book.reapers:
                self._book.suspects.clear()

    async def _work(self) -> None:
        due = glance = 0.0
        while True:
            self._wake.clear()
            now = self._handle.clock.monotonic()
            if now >= due:
                due = now + SWEEP
                await self.sweep()
            else:
                suspects, self._book.suspects = self._book.suspects, set()
                if now >= glance:
                    glance = now + GLANCE
                    suspects |= self._still_unplaced()
                await self._check((*self._leases_of(suspects), *self._again()))
            await self._pay(self._owing.take())
            ahead = min(due, glance) if self._book.has_marks or self._unplaced else due
            ahead = min(ahead, self._owing.next_at, self._unchecked.next_at)
            await self._rest(ahead - self._handle.clock.monotonic())

    def _leases_of(self, uids: Iterable[str]) -> Iterator[model.Lease]:
        return (lease for uid in uids for lease in self._book.leases_of(uid))

    def _again(self) -> Iterator[model.Lease]:
        """The leases that are to be checked again."""
        for name in self._unchecked.take():
            lease = self._locks.newest(name)
            if lease is not None:
                yield lease
            else:
                self._unchecked.ended(name)

    async def give_back(self, parts: Sequence[HoldPart]) -> None:
        """Release the leases of an attempt; what cannot be released is tried again soon."""
        by = parts[0].hold.by
        self._book.owed[by] = parts
        try:
            await self._locks.release(parts)
        except GanglineError as error:
            if self._owing.failed(by):
                log.warning("cannot release leases of pod %s yet: %s", parts[0].hold.pod, error)
            self._wake.set()
        else:
            self._book.owed.pop(by, None)
            self._owing.ended(by)

    async def _pay(self, attempts: Sequence[str]) -> None:
        """Release what attempts owe, several at a time."""

        async def work(by: str) -> None:
            parts = self._book.owed.get(by)
            if parts is None:  # it was released meanwhile
                self._owing.ended(by)
            else:
                await self.give_back(parts)

        await _each(attempts, work)

    def look_after(self, uid: str, node: str) -> None:
        """A pod was bound to a node: check soon the leases that it holds on other nodes."""
        if any(node_of(lease) != node for lease in self._book.leases_of(uid)):
            self._book.suspects.add(uid)
            self._wake.set()

    async def sweep(self) -> None:
        """Check all leases."""
        self._book.settle()
        self._book.suspects.clear()
        for by in [by for by in self._book.owed if by not in self._owing]:  # of an earlier configuration
            self._owing.failed(by)
        leases = [lease for lease in self._store if lease.metadata.namespace == self._locks.namespace]
        await self._check(leases)
        self._first_seen = {key: at for key, at in self._first_seen.items() if self._is_held(*key)}
        attempts = {by for _, by in self._first_seen}
        self._died = {by: at for by, at in self._died.items() if by in attempts}

    def _is_held(self, name: str, by: str) -> bool:
        """Whether an attempt still has a hold on a lease."""
        lease = self._store.get(name, self._locks.namespace)
        return lease is not None and any(hold.by == by for hold in holders_of(lease).values())

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return

    def _still_unplaced(self) -> frozenset[str]:
        """UIDs of pods that have leases and no node here, both now and at the last check."""
        before, self._unplaced = self._unplaced, self._book.unplaced()
        return before & self._unplaced

    async def _check(self, leases: Iterable[model.Lease]) -> None:
        """Free those of these leases that no pod needs, several pods at a time; not those that the reaper of another
        profile has in hand.
        """
        by_pod: dict[str, dict[str, None]] = {}
        in_hand = self._book.in_hand
        mine: set[Key] = set()
        try:
            for number, lease in enumerate(leases, start=1):
                if number % BREATH == 0:
                    await asyncio.sleep(0)
                name, key = lease.metadata.name, (lease.metadata.namespace, lease.metadata.name)
                if self._is_in_use(lease):
                    self._unchecked.ended(name)
                elif key not in in_hand:
                    in_hand.add(key)
                    mine.add(key)
                    first = next(iter(holders_of(lease).values()), None)
                    by_pod.setdefault(first.pod if first else "", {})[name] = None
            await _each(by_pod.values(), self._free_all)
        finally:
            in_hand -= mine

    async def _free_all(self, names: Iterable[str]) -> None:
        """Free what no pod needs of the leases of one pod."""
        live: LivePods = {}
        for name in names:
            try:
                await self._free(name, live)
            except GanglineError as error:
                if self._unchecked.failed(name):
                    log.warning("cannot look after lease %s yet: %s", name, error)
            else:
                self._unchecked.ended(name)
            finally:
                self._book.in_hand.discard((self._locks.namespace, name))

    def _is_in_use(self, lease: model.Lease) -> bool:
        """Whether the cluster as known here shows that every holder is on the lease's node."""
        node, holders = node_of(lease), holders_of(lease)
        return bool(holders) and all(self._is_there(uid_of(holder), hold, node) for holder, hold in holders.items())

    def _is_there(self, uid: str, hold: Hold, node: str) -> bool:
        pod = self._handle.state.pods.get(uid)
        if pod is None or pod.node_name != node:
            return False
        allocated = pod.annotations.get(custom_resources.ALLOCATED)
        return allocated is None or set(hold.ids) <= set(texts.device_ids(allocated))

    async def _free(self, name: str, live: LivePods) -> None:
        """Free what no pod needs of a lease, as the lease is by now."""
        lease = self._locks.newest(name)
        if lease is None or self._is_in_use(lease):
            return
        node, holders = node_of(lease), holders_of(lease)
        over = {h: hold for h, hold in holders.items() if await self._has_ended(lease, uid_of(h), hold, node, live)}
        if over or not holders:
            await self._locks.drop(name, over)

    async def _has_ended(self, lease: model.Lease, uid: str, hold: Hold, node: str, live: LivePods) -> bool:
        if self._is_there(uid, hold, node):
            return False
        if hold.pod not in live:
            live[hold.pod] = await self._locks.live_pod(hold, uid)
        pod = live[hold.pod]
        if is_over(hold, uid, node, pod, self._book.held(uid, node)):
            return True
        if pod is None or pod.spec.node_name or uid in self._handle.state.pods:
            return False
        now = self._handle.clock.monotonic()
        waited = now - self._first_seen.setdefault((lease.metadata.name, hold.by), now)
        if waited < ABANDONED and not await self._has_died(hold, now):
            return False
        pod = live[hold.pod] = await self._locks.live_pod(hold, uid)  # what was read before may be older than a binding
        return pod is None or not pod.spec.node_name or is_over(hold, uid, node, pod, self._book.held(uid, node))

    async def _has_died(self, hold: Hold, now: float) -> bool:
        """Whether the scheduler that wrote the hold leads no more, and no binding of its can still be under way."""
        if self._locks.has_ended(hold):
            return True
        if not hold.term:
            return False
        # Numbers of leaders may begin anew when somebody deletes the Lease: others may have led under this term.
        is_own = hold.term == self._handle.term.name
        if hold.scheduler == self._book.scheduler if is_own else await self._leaders.lead(hold.term):
            self._died.pop(hold.by, None)
            return False
        return now - self._died.setdefault(hold.by, now) >= LANDING


async def _each(items: Collection[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do the work for each item, for several at a time."""
    waiting = iter(items)

    async def lane() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(_AT_ONCE, len(items))):
            group.create_task(lane())
