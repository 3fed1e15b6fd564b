"""DeviceLease: before a pod is bound its devices are locked on the API server, so no other scheduler gives them away.

GpuClaim and GpuSchedulingMap decide on devices in memory; this plugin makes that hold against everybody else.
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
from gangline_plugins.gpu.leases.holds import Part, parts_of
from gangline_plugins.gpu.leases.locks import Locks, Taken
from gangline_plugins.gpu.leases.reaper import Reaper
from gangline_plugins.gpu.wants import Want

PARTS: StateKey[Sequence[Part]] = StateKey("DeviceLease parts")
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAMESPACE = "kube-system"


class DeviceLeaseArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments; all schedulers of a cluster need the same ones."""

    namespace: str = ""
    """Where all leases are; by default the namespace that the scheduler runs in, kube-system outside of a cluster."""
    granularity: Literal["device", "node"] = "device"
    """One lease per device, or one per node with all of its devices: fewer writes for pods with many devices."""


class DeviceLease:
    """Locks the devices of a pod in `pre_bind`, and frees them when the pod has ended."""

    name = "DeviceLease"
    args_type = DeviceLeaseArgs

    def __init__(self, args: DeviceLeaseArgs, handle: Handle) -> None:
        namespace = args.namespace or own_namespace()
        self.watches = (resources.Selection(resources.LEASES, namespace, f"{custom_resources.MANAGED}=true"),)
        self._handle = handle
        self._whole_node = args.granularity == "node"
        self._table = device_table(handle.state)
        self._book = lease_book(handle.state)
        self._store = handle.state.store(resources.LEASES)
        self._locks = Locks(handle.client, namespace, handle.clock, self._book.held)
        self._reaper = Reaper(handle, self._locks, self._book)
        self._store.subscribe(self._locks)
        handle.run(self._reaper.run)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A lease that was in the way is given back, or a pod leaves its devices."""
        return (on("leases", Action.UPDATE | Action.DELETE), on("pods", Action.DELETE))

    @hookimpl
    def pre_cycle(self, pod: PodInfo) -> None:
        """Devices that are locked for this very pod are free for it: a scheduler has died, or given up late."""
        self._book.visit(pod.uid)

    @hookimpl
    def post_reject(self, pod: PodInfo) -> bool:
        """Locked devices may have been what the pod lacks."""
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
        attempt = self._book.next_attempt()
        parts = parts_of(allocation, node, pod.uid, pod.key, attempt, self._whole_node)
        cycle.write(PARTS, parts)
        memory = self._table.columns.memory_total[allocation.row].tolist()
        seen = [self._store.get(part.lease, self._locks.namespace) for part in parts]
        taken = await self._locks.acquire(parts, memory, seen)
        if taken is None:
            return None
        cycle.write(PARTS, ())
        self._book.learn(taken.lease)
        return _conflict(taken, node)

    @hookimpl
    def unreserve(self, cycle: Cycle) -> None:
        """Release what was locked, in the background."""
        parts = cycle.get(PARTS)
        if parts:
            self._handle.spawn(partial(self._reaper.give_back, parts))

    @hookimpl
    async def post_bind(self, pod: PodInfo, node: str) -> None:
        """Leases of earlier attempts, on devices that the pod did not get in the end, are not needed any more."""
        self._reaper.look_after(pod.uid, node)


def own_namespace() -> str:
    """The namespace that this process runs in, as its environment or its service account says."""
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
