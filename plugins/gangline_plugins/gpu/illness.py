"""Pods on a GPU that became unhealthy: they stay on their nodes, and an event tells them."""

from __future__ import annotations

from collections.abc import Iterator

from gangline import PodInfo, State
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.links import ids_of

_MOST_SHOWN = 200


def on_ill_devices(table: DeviceTable, state: State) -> Iterator[tuple[PodInfo, int, str]]:
    """Each bound pod on a device that its node reports as Unhealthy, the index of the device, and the node's reason."""
    c = table.columns
    ill = c.present & c.busy & ~c.healthy & ~c.unknown
    for row in ill.nonzero()[0].tolist():
        holders = table.holders(row)
        for id in ids_of(int(ill[row])):
            for uid in holders.get(id, ()):
                pod = state.pods.get(uid)
                if pod is not None and pod.node_name:
                    yield pod, id, table.reports.reason(row, id)[:_MOST_SHOWN]


class Illness:
    """Remembers which pods were told of which devices; one per cluster for all profiles."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int]] = set()

    def news(self, table: DeviceTable, state: State) -> list[tuple[PodInfo, str]]:
        """Each pod on a device that its node reports as Unhealthy, and the message for it; each pod and device once."""
        self._told = {(uid, id) for uid, id in self._told if uid in state.pods}
        found = []
        for pod, id, reason in on_ill_devices(table, state):
            if (pod.uid, id) not in self._told:
                self._told.add((pod.uid, id))
                found.append((pod, _note(pod.node_name, id, reason)))
        return found


def _note(node: str, id: int, reason: str) -> str:
    why = f": {reason}" if reason else ""
    return f"GPU {id} of node {node}, which the pod has, is unhealthy{why}; a pod on its own stays until it is deleted"
