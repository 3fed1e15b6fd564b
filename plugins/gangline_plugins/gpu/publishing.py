"""Writes what the device table knows of a node into its columns, and tells the state which rows have changed."""

from __future__ import annotations

from gangline import PODS, State, renumber
from gangline_plugins.gpu import hardware as reports
from gangline_plugins.gpu.columns import NO_CLASS, Columns
from gangline_plugins.gpu.links import ids_of
from gangline_plugins.gpu.node_devices import EVERY, WHOLE, NodeDevices

_MOST_SETS = 1024
"""Sets of adapters that are kept before those are looked for that no node has any more."""


class Publisher:
    """Writer of the columns."""

    def __init__(self, columns: Columns, state: State) -> None:
        self._columns = columns
        self._state = state
        self.hca_sets: list[frozenset[str]] = [frozenset()]
        """The sets of RDMA adapters, by their number in the columns."""
        self._numbers: dict[frozenset[str], int] = {frozenset(): 0}

    def hardware(self, row: int, node: NodeDevices, is_reported: bool) -> None:
        """The hardware of a node is another one, or is handed out in another way."""
        c, hardware = self._columns, node.hardware
        c.known[row], c.unusable[row] = hardware is not None, bool(node.problem)
        if not is_reported:
            c.heartbeat[row] = reports.NO_HEARTBEAT
        c.present[row] = hardware.present if hardware else 0
        c.healthy[row] = hardware.healthy if hardware else 0
        c.unknown[row] = hardware.unknown if hardware else 0
        c.mig[row] = hardware.mig if hardware else 0
        c.link_class[row] = hardware.links.number if hardware else NO_CLASS
        c.memory_total[row] = hardware.memory if hardware else 0
        c.ports[row] = hardware.ports if hardware else 0
        c.cu_file[row] = hardware.cu_file if hardware else False
        c.hcas[row] = self._hca_set(hardware.hcas) if hardware else 0
        c.replicas[row], c.mps[row], c.mig_single[row] = node.replicas, node.mps, node.mig_single
        for column in (*c.instances.values(), *c.free_instances.values()):
            column[row] = 0
        node.unpublished = EVERY
        self.taken(row, node)
        self._state.touch(row)

    def taken(self, row: int, node: NodeDevices) -> None:
        """Bring the columns of what is taken up to date."""
        c, hardware = self._columns, node.hardware
        c.busy[row], c.whole[row] = node.busy, node.taken_whole
        for id in ids_of(node.unpublished):
            c.milli[row, id] = max(0, WHOLE - node.milli[id])
            if hardware is not None:
                c.memory[row, id] = max(0, hardware.memory[id] - node.memory[id])
        node.unpublished = 0
        if hardware is not None and hardware.instances:
            for profile, total, free in node.instance_counts():
                c.set_instances(row, profile, total, free)
        self._state.touch(row, PODS)

    def _hca_set(self, names: frozenset[str]) -> int:
        number = self._numbers.get(names)
        if number is None and len(self.hca_sets) >= _MOST_SETS:
            self._numbers = renumber(self.hca_sets, self._columns.hcas)
        if number is None:
            number = self._numbers[names] = len(self.hca_sets)
            self.hca_sets.append(names)
        return number
