"""Pods on a GPU that became unhealthy: they stay on their nodes, and an event tells them."""

from __future__ import annotations

from gangline import PodInfo, State
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.links import ids_of


class Illness:
    """Remembers which pods were told of which devices; one per cluster for all profiles."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int]] = set()

    def news(self, table: DeviceTable, state: State) -> list[tuple[PodInfo, str]]:
        """Each pod on a device that its node reports as Unhealthy, and the message for it; each pod and device once."""
        self._told = {(uid, id) for uid, id in self._told if uid in state.pods}
        c = table.columns
        ill = c.present & c.busy & ~c.healthy & ~c.unknown
        found = []
        for row in ill.nonzero()[0].tolist():
            holders = table.holders(row)
            for id in ids_of(int(ill[row])):
                for uid in holders.get(id, ()):
                    pod = state.pods.get(uid)
                    if pod is not None and pod.node_name and (uid, id) not in self._told:
                        self._told.add((uid, id))
                        found.append((pod, _note(pod.node_name, id, table.reports.reason(row, id))))
        return found


def _note(node: str, id: int, reason: str) -> str:
    why = f": {reason[:200]}" if reason else ""
    return f"GPU {id} of node {node}, which the pod has, is unhealthy{why}; the pod stays until somebody deletes it"
