"""Makes good what bound pods lack: leases that somebody has deleted, and devices that nobody has chosen.

- The annotation of a bound pod is the truth, as far as it is believed. Its leases are made again within seconds. A
  lease whose list of holders cannot be read is written again for the pod that it names, and then for others.
- A pod that was bound while its node did not report its GPUs has no annotation. Once the node reports them, the pod
  gets the devices that the table counts for it, if no other pod has them: the leases first, then the annotation. It is
  written with the pod's status, because the scheduler may not write pods otherwise.
- The API server is asked about each pod first: a pod that has ended gets nothing.
- At most MOST pods are looked after per second, so a namespace of leases that is emptied does not flood the API server.
- What fails, or cannot be done yet because the node of a pod is gone, is tried again soon; see `retrying`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from gangline import GanglineError, Handle, NotFound, PodInfo, custom_resources, failpoint, model, resources, texts
from gangline_plugins.gpu.allocation import Allocation, join
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.leases.book import LeaseBook
from gangline_plugins.gpu.leases.holds import HoldPart, parts_of
from gangline_plugins.gpu.leases.locks import Locks, Restored
from gangline_plugins.gpu.leases.reaper import BREATH, SWEEP
from gangline_plugins.gpu.leases.retrying import Retries
from gangline_plugins.gpu.wants import Want
from gangline_plugins.telling import Teller

log = logging.getLogger(__name__)

MOST = 256
"""Pods that are looked after in one round."""
REST = 1.0
"""Seconds between two rounds."""
_AT_ONCE = 16


class Mender:
    """Looks after the bound pods of one profile."""

    def __init__(self, handle: Handle, locks: Locks, book: LeaseBook, table: DeviceTable, whole_node: bool) -> None:
        self._handle = handle
        self._pods = handle.state.pods
        self._locks = locks
        self._book = book
        self._table = table
        self._whole_node = whole_node
        self._teller = Teller(handle)
        self._mended = handle.metric(
            "gangline_mended_allocations", "Bound pods that lacked leases or devices and got them.", ("lacked",)
        )
        self._wake = asyncio.Event()
        self._is_at_work = False
        """Whether anybody takes from `_due`; not on a standby. The work begins with a look at all pods."""
        self._due: dict[str, None] = {}
        self._again: Retries[str] = Retries(handle.clock)
        """Pods that could not be looked after."""
        self._stranded: set[str] = set()
        """Pods that have lost leases while their nodes are gone."""
        self._begun: set[str] = set()
        """Pods without an annotation for which devices are chosen."""
        book.bereaved.append(self._lost)
        handle.state.at_end(lambda: book.bereaved.remove(self._lost))
        table.reports.changed.append(self._reported)
        handle.state.at_end(lambda: table.reports.changed.remove(self._reported))
        handle.state.follow_nodes(self)

    async def run(self) -> None:
        """Mend until cancelled."""
        self._is_at_work = True
        try:
            await self._work()
        finally:
            self._is_at_work = False
            self._due.clear()

    async def _work(self) -> None:
        clock, due = self._handle.clock, 0.0
        while True:
            self._wake.clear()
            if clock.monotonic() >= due:
                due = clock.monotonic() + SWEEP
                await self._sweep()
            self._due.update(dict.fromkeys(self._again.take()))
            batch = list(self._due)[:MOST]
            for uid in batch:
                del self._due[uid]
            await self._mend_all(iter(batch))
            await asyncio.sleep(REST)
            if not self._due:
                await self._sleep_until(min(due, self._again.next_at))

    async def _sleep_until(self, moment: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, moment - self._handle.clock.monotonic())):
                await self._wake.wait()
        except TimeoutError:
            return

    def _lost(self, uid: str) -> None:
        """A lease of a placed pod is gone."""
        pod = self._pods.get(uid)
        if self._is_at_work and pod is not None and pod.scheduler_name == self._handle.profile:
            self._due[uid] = None
            self._wake.set()

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node was added or has changed: it may be one that was gone, and its pods return to it in a moment."""
        for uid in list(self._stranded):
            pod = self._pods.get(uid)
            if pod is not None and pod.node_name == node.metadata.name:
                self._stranded.discard(uid)
                self._again.ended(uid)
                self._lost(uid)

    def node_removed(self, name: str, row: int) -> None:
        """A node was removed."""

    def _reported(self, row: int) -> None:
        """A node reports devices: pods on it may have been bound without any.

        An agent creates its report first and writes the devices into its status then, so the first report may be empty.
        """
        for uid in {uid for uids in self._table.holders(row).values() for uid in uids}:
            pod = self._pods.get(uid)
            if pod is not None and (custom_resources.ALLOCATED not in pod.annotations or self._lacks_something(pod)):
                self._lost(uid)

    async def _sweep(self) -> None:
        """Find the pods that lack something."""
        self._begun.intersection_update(self._pods.keys())
        self._stranded.intersection_update(self._pods.keys())
        for number, pod in enumerate(list(self._pods.values()), start=1):
            if pod.scheduler_name == self._handle.profile and self._lacks_something(pod):
                self._due[pod.uid] = None
            if number % BREATH == 0:
                await asyncio.sleep(0)

    def _lacks_something(self, pod: PodInfo) -> bool:
        allocation = self._allocation(pod)
        if allocation is None:
            return False
        is_written = custom_resources.ALLOCATED in pod.annotations
        return not is_written or not self._book.listed(pod.uid, pod.node_name).issuperset(allocation.ids)

    def _allocation(self, pod: PodInfo) -> Allocation | None:
        """The devices that the pod has or may be given for good; None if it has none, or they are not certain."""
        found = self._table.allocation(pod.uid)
        if found is None or pod.row < 0 or not found.ids:
            return None
        text, beliefs = pod.annotations.get(custom_resources.ALLOCATED), self._table.beliefs
        if text is not None:
            is_believed = found.ids == tuple(sorted(texts.device_ids(text)))
            return found if is_believed and not beliefs.is_new(pod.uid) and pod.uid not in beliefs.doubts else None
        want = self._table.wants.of(pod)
        if not isinstance(want, Want) or (want.implicit and not self._table.chooses_for.of(pod.scheduler_name)):
            return None
        if found.is_firm and pod.uid not in self._begun:
            return None  # it is being bound
        return found if self._table.columns.known[pod.row] else None

    async def _mend_all(self, uids: Iterator[str]) -> None:
        async def work() -> None:
            for uid in uids:
                pod = self._pods.get(uid)
                if pod is not None and self._lacks_something(pod):
                    await self._try(pod)
                elif pod is not None and self._must_wait(pod):
                    self._again.failed(uid)
                else:
                    self._again.ended(uid)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(work())

    def _must_wait(self, pod: PodInfo) -> bool:
        """Whether it will only be known later which leases the pod lacks."""
        if pod.row < 0:
            self._stranded.add(pod.uid)
        return pod.row < 0 or self._table.beliefs.is_new(pod.uid)

    async def _try(self, pod: PodInfo) -> None:
        try:
            await self._mend(pod)
        except GanglineError as error:
            if self._again.failed(pod.uid):
                log.warning("cannot look after the devices of pod %s yet: %s", pod.key, error)
        else:
            self._again.ended(pod.uid)

    async def _mend(self, pod: PodInfo) -> None:
        live = await self._live(pod)
        allocation = self._allocation(pod)
        if live is None or allocation is None:
            return
        written = (live.metadata.annotations or {}).get(custom_resources.ALLOCATED)
        if self._pods.get(pod.uid) is not pod or written != pod.annotations.get(custom_resources.ALLOCATED):
            self._lost(pod.uid)  # the pod has changed meanwhile, or the watch has not told yet: once more in a moment
            return
        if written is None:
            await self._choose(pod, allocation)
        elif (restored := await self._lock(pod, allocation)).made and restored.taken is None:
            log.warning("pod %s: its leases were gone and are made again", pod.key)
            self._mended.labels("leases").inc()

    async def _choose(self, pod: PodInfo, allocation: Allocation) -> None:
        want, holders = self._table.wants.of(pod), self._table.holders(allocation.row)
        too_few = isinstance(want, Want) and len(allocation.ids) < want.count
        if allocation.takes_whole and (too_few or any(holders.get(id) != [pod.uid] for id in allocation.ids)):
            note = "the pod was bound without devices, and too few are free on its node to choose some now"
            self._teller.once(pod, "DevicesNotChosen", note)
            return
        self._begun.add(pod.uid)
        firm = self._table.reserve(pod.uid)
        if firm is None or (await self._lock(pod, firm)).taken is not None:
            return
        failpoint("annotation.before-write")
        await self._handle.client.patch(
            resources.PODS,
            pod.name,
            {"metadata": {"uid": pod.uid, "annotations": firm.annotations}},
            namespace=pod.namespace,
            subresource="status",
        )
        failpoint("annotation.after-write")
        note = f"the pod was bound while its node did not report its GPUs: it has GPU {join(firm.ids)} now"
        self._handle.recorder.event(pod, "Warning", "DevicesChosenLate", note)
        self._mended.labels("devices").inc()

    async def _lock(self, pod: PodInfo, allocation: Allocation) -> Restored:
        """Make the leases that the pod lacks; tells if another live pod has one of them. Raises ApiError."""
        memory = self._table.columns.memory_total[allocation.row].tolist()
        restored = await self._locks.restore(self._parts(pod, allocation), memory)
        if (taken := restored.taken) is not None:
            note = f"GPU {join(taken.hold.ids)} of node {pod.node_name} is locked for pod {taken.hold.pod}, too"
            self._teller.once(pod, "DevicesLockedTwice", note)
        return restored

    def _parts(self, pod: PodInfo, allocation: Allocation) -> Sequence[HoldPart]:
        attempt = self._book.next_attempt()
        term = self._handle.term.name
        parts = parts_of(allocation, pod.node_name, pod.uid, pod.key, attempt, self._whole_node, term)
        held = self._book.listed(pod.uid, pod.node_name)
        return [part for part in parts if not held.issuperset(part.hold.ids)]

    async def _live(self, pod: PodInfo) -> model.Pod | None:
        """The pod as the API server has it; None if it is gone, has ended or is not on its node."""
        try:
            live = await self._handle.client.get(resources.PODS, pod.name, namespace=pod.namespace)
        except NotFound:
            return None
        is_there = (live.metadata.uid, live.spec.node_name) == (pod.uid, pod.node_name)
        return live if is_there and live.status.phase not in ("Succeeded", "Failed") else None
