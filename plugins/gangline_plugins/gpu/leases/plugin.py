"""DeviceLease: locks the devices of a pod on the API server before the pod is bound, so that no other scheduler gives
them away.

GpuClaim and GpuSchedulingMap choose devices in this process's memory. Two schedulers may choose the same device at the
same time, and then only the API server can decide. The package works in these steps:

1. `pre_bind` writes one Lease per device of the pod, or one per node; see `locks`. If a live pod already holds a
   device, all leases taken so far are released and the pod waits. What is locked for a pod without a node gives way if
   the attempt that locked it has ended. From then on the pod may be bound for `BIND_WITHIN` seconds: a scheduler that
   is cut off for longer binds nothing to devices that others have taken for abandoned.
2. Every scheduler watches the leases. `book` marks devices as taken in its device table if they are locked for a pod
   that it does not know yet.
3. If a pod is not bound in the end, `unreserve` releases its leases.
4. `reaper` deletes the leases of pods that have ended or were deleted. It asks the API server before it frees a device.
5. `mending` makes leases of bound pods again if somebody has deleted them, and chooses devices for pods that were bound
   without any.

`holds` defines what a lease says, and when two pods may share a device; `names` defines how leases are called.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from gangline import (
    Action,
    Cycle,
    EventHint,
    Handle,
    Membership,
    PodInfo,
    StateKey,
    Status,
    custom_resources,
    hookimpl,
    on,
    resources,
    unschedulable,
)
from gangline_plugins.gpu.allocation import join
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.leases.book import lease_book
from gangline_plugins.gpu.leases.holds import Hold, HoldPart, parts_of, uid_of
from gangline_plugins.gpu.leases.locks import Locks, Taken
from gangline_plugins.gpu.leases.mending import Mender
from gangline_plugins.gpu.leases.reaper import BIND_WITHIN, Reaper
from gangline_plugins.gpu.wants import Want

PARTS: StateKey[Sequence[HoldPart]] = StateKey("DeviceLease parts")
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAMESPACE = "kube-system"


class DeviceLeaseArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of DeviceLease; all schedulers of a cluster need the same ones."""

    namespace: str = ""
    """The namespace of all leases. The default is the namespace that the scheduler runs in, or kube-system outside of a
    cluster.
    """
    granularity: Literal["device", "node"] = "device"
    """`device`: one lease per device. `node`: one lease per node for all of its devices, which needs fewer writes for
    pods with many devices.
    """


class DeviceLease:
    """Locks the devices of a pod in `pre_bind`, and frees them after the pod has ended."""

    name = "DeviceLease"
    args_type = DeviceLeaseArgs

    def __init__(self, args: DeviceLeaseArgs, handle: Handle) -> None:
        namespace = args.namespace or own_namespace()
        self.watches = (resources.Selection(resources.LEASES, namespace, f"{custom_resources.MANAGED}=true"),)
        self._handle = handle
        self._whole_node = args.granularity == "node"
        self._table = device_table(handle.state)
        self._book = lease_book(handle.state)
        store = handle.state.store(resources.LEASES)
        self._locks = Locks(handle.client, namespace, handle.clock, store, self._book.held, self._has_ended)
        self._reaper = Reaper(handle, self._locks, self._book)
        store.subscribe(self._locks)
        handle.run(self._reaper.run)
        handle.run(Mender(handle, self._locks, self._book, self._table, self._whole_node).run)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A lease was changed or deleted, or a pod was deleted."""
        return (on("leases", Action.UPDATE | Action.DELETE), on("pods", Action.DELETE))

    @hookimpl
    def pre_cycle(self, pod: PodInfo) -> None:
        """Lift the marks of leases of the pod and of its gang: devices that are locked for them are free for them. Such
        leases exist if a scheduler died or released them late.
        """
        if self._book.leaves():
            return
        membership = self._handle.group_of(pod)
        if isinstance(membership, Membership):
            key = membership.group.key
            self._book.visit(pod.uid, key, partial(self._waiting_members, key))
        else:
            self._book.visit(pod.uid)

    @hookimpl
    def pre_cycle_all(self, pods: Sequence[PodInfo]) -> None:
        """As `pre_cycle` for each."""
        if not self._book.leaves():
            for pod in pods:
                self.pre_cycle(pod)

    def _waiting_members(self, key: str) -> list[str]:
        """The UIDs of the members of a group that have no node."""
        return [member.uid for member in self._handle.queued_members(key)]

    def _siblings(self, pod: PodInfo) -> list[str]:
        """The UIDs of the members of the pod's group that have no node; none for a pod on its own."""
        membership = self._handle.group_of(pod)
        return self._waiting_members(membership.group.key) if isinstance(membership, Membership) else []

    def _has_ended(self, hold: Hold) -> bool:
        """Whether the attempt that wrote a hold binds no pod any more: it is releasing its leases, or a former leader
        made it.
        """
        if hold.adopted or hold.by in self._book.owed:
            return not hold.adopted
        term = self._handle.term
        is_former = hold.is_older_than(term.name) and hold.scheduler in self._book.formers(term.name)
        return is_former and self._handle.clock.monotonic() >= term.settled

    @hookimpl
    def post_reject(self, pod: PodInfo) -> bool:
        """Whether the pod may lack devices only because they are locked."""
        return self._book.has_marks and isinstance(self._table.wants.of(pod), Want)

    @hookimpl
    async def pre_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Lock all devices of the pod, or none. Raises ApiError."""
        if custom_resources.ALLOCATED not in cycle.annotations:
            return None
        allocation = self._table.allocation(pod.uid)
        if (
            allocation is None
            or allocation.annotations.get(custom_resources.ALLOCATED) != cycle.annotations[custom_resources.ALLOCATED]
        ):
            return unschedulable(f"the devices on node {node} that were chosen are no longer there")
        if not allocation.ids:
            return None
        cycle.bind_by = min(cycle.bind_by, self._handle.clock.monotonic() + BIND_WITHIN)
        attempt = self._book.next_attempt()
        parts = parts_of(allocation, node, pod.uid, pod.key, attempt, self._whole_node, self._handle.term.name)
        cycle.write(PARTS, parts)
        memory = self._table.columns.memory_total[allocation.row].tolist()
        taken = await self._locks.acquire(parts, memory)
        if taken is None:
            return None
        cycle.write(PARTS, ())
        self._book.learn(taken.lease)
        if uid_of(taken.holder) in self._siblings(pod):
            self._book.dispute(uid_of(taken.holder), taken.lease)
        return _conflict(taken, node)

    @hookimpl
    def unreserve(self, cycle: Cycle) -> None:
        """Release the pod's leases in the background."""
        parts = cycle.get(PARTS)
        if parts:
            self._book.owed[parts[0].hold.by] = parts
            self._handle.spawn(partial(self._reaper.give_back, parts))

    @hookimpl
    async def post_bind(self, pod: PodInfo, node: str) -> None:
        """Look for leases of earlier attempts, on devices that the pod did not get in the end: they are not needed any
        more.
        """
        self._reaper.look_after(pod.uid, node)


def own_namespace() -> str:
    """The namespace that this process runs in, from its environment or its service account."""
    if named := os.environ.get("POD_NAMESPACE"):
        return named
    try:
        return _NAMESPACE_FILE.read_text().strip() or _NAMESPACE
    except OSError:
        return _NAMESPACE


def _conflict(taken: Taken, node: str) -> Status:
    devices = join(taken.hold.ids)
    return unschedulable(
        f"GPU {devices} of node {node} is locked for pod {taken.hold.pod} by another scheduler "
        f"(lease {taken.lease.metadata.namespace}/{taken.lease.metadata.name})"
    )
