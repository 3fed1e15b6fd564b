"""Which pods are on devices that are ill, as the reports of their nodes say and as drivers and administrators say."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gangline import Handle, PodInfo, custom_resources, resources
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.illness import on_ill_devices
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.recovery.claim_losses import ClaimHealth
from gangline_plugins.recovery.device_wear import DeviceWear
from gangline_plugins.recovery.losses import Loss
from gangline_plugins.recovery.wear import ILL, NodeWear

_MOST_SHOWN = 80


class DeviceHealth:
    """Knows the bound pods on GPUs that their nodes report as Unhealthy, and on devices with taints that end pods."""

    def __init__(self, handle: Handle, changed: Callable[[], None], wear: NodeWear, devices: DeviceWear) -> None:
        self._handle = handle
        self._wear = wear
        self._device_wear = devices
        self._table = device_table(handle.state)
        self._changed = changed
        self._claims = ClaimHealth(handle, changed)
        self._ill: dict[str, frozenset[int]] = {}
        """The ill GPUs of each node that has some."""
        self._since: dict[str, float] = {}
        """When the device of each pod was first seen to be ill, by the UID of the pod, on the monotonic clock."""
        handle.state.store(resources.GPU_NODE_STATUSES).subscribe(self)

    def on_upsert(self, report: custom_resources.GpuNodeStatus) -> None:
        """A node reports its devices. What fails together counts once against the node."""
        name, devices = report.metadata.name, report.status.devices
        ill = frozenset(each.id for each in devices if each.health == "Unhealthy" and 0 <= each.id < MOST_DEVICES)
        if ill or name in self._ill:
            self._tell(name, ill)
        if ill:
            self._changed()

    def on_remove(self, report: custom_resources.GpuNodeStatus) -> None:
        """A report was deleted: the health of these devices is unknown, which is no loss."""
        self._tell(report.metadata.name, frozenset())

    def _tell(self, node: str, ill: frozenset[int]) -> None:
        before, now = self._ill.pop(node, frozenset()), self._handle.clock.monotonic()
        if ill:
            self._ill[node] = ill
        if ill - before:
            self._wear.failed(node, now)
        self._wear.hold(node, ILL, bool(ill), now)
        self._device_wear.told(node, before, ill, now)

    def losses(self, now: float) -> Iterable[tuple[PodInfo, Loss]]:
        """The pods on ill devices, with their losses. The node says so itself, so there is no grace."""
        found: dict[str, tuple[PodInfo, Loss]] = {}
        for pod, id, reason in on_ill_devices(self._table, self._handle.state):
            since = self._since.get(pod.uid, now)
            why = f"GPU {id} of node {pod.node_name} is unhealthy{f' ({reason[:_MOST_SHOWN]})' if reason else ''}"
            found.setdefault(pod.uid, (pod, Loss(pod.node_name, why, since, since, is_certain=True)))
        self._since = {uid: loss.since for uid, (_, loss) in found.items()}
        return [*found.values(), *self._claims.losses(now)]
