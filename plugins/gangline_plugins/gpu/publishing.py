"""Writes the devices of a node into the columns of the device table, and notes with the state which rows have
changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gangline import PODS, State, renumber
from gangline_plugins.gpu import hardware as reports
from gangline_plugins.gpu.columns import NO_CLASS, Columns
from gangline_plugins.gpu.links import ids_of
from gangline_plugins.gpu.node_devices import EVERY, WHOLE, NodeDevices
from gangline_plugins.twin_gpus import TwinGpus

_MOST_SETS = 1024
"""At this many sets of adapters, those that no node has any more are removed."""


class Publisher:
    """The only writer of the columns."""

    def __init__(self, columns: Columns, state: State) -> None:
        self._columns = columns
        self._state = state
        self.hca_sets: list[frozenset[str]] = [frozenset()]
        """The sets of RDMA adapters, indexed by the number in the column `hcas`."""
        self._numbers: dict[frozenset[str], int] = {frozenset(): 0}
        self.twins: TwinGpus | None = None
        """Is told of each change; None until a plugin sets it."""

    def hardware(self, row: int, node: NodeDevices, is_reported: bool) -> None:
        """Write all columns of a node whose hardware has changed, or whose device plugin hands out devices in a
        different way.
        """
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
        if self.twins is not None:
            self.twins.hardware_changed(row)

    def taken(self, row: int, node: NodeDevices) -> None:
        """Write the columns that tell which devices are in use."""
        c, hardware = self._columns, node.hardware
        c.busy[row], c.whole[row] = node.busy, node.taken_whole
        if node.unpublished:
            for id in ids_of(node.unpublished):
                c.milli[row, id] = max(0, WHOLE - node.milli[id])
                if hardware is not None:
                    c.memory[row, id] = max(0, hardware.memory[id] - node.memory[id])
            node.unpublished = 0
        if hardware is not None and hardware.instances:
            for profile, total, free in node.instance_counts():
                c.set_instances(row, profile, total, free)
        self._state.touch(row, PODS)
        if self.twins is not None:
            self.twins.pods_changed(row)

    def all_taken(self, rows: Sequence[int], nodes: Sequence[NodeDevices]) -> None:
        """As `taken` for each of these rows, in which some node may be several times."""
        odd = [each.unpublished or (each.hardware is not None and each.hardware.instances) for each in nodes]
        if any(odd):
            for row, node in itertools.compress(zip(rows, nodes, strict=True), odd):
                self.taken(row, node)
            plain = [not each for each in odd]
            rows, nodes = list(itertools.compress(rows, plain)), list(itertools.compress(nodes, plain))
        self._columns.busy[rows] = [node.busy for node in nodes]
        self._columns.whole[rows] = [node.taken_whole for node in nodes]
        self._state.touch_all(rows, PODS)
        if self.twins is not None:
            for row in dict.fromkeys(rows):
                self.twins.pods_changed(row)

    def _hca_set(self, names: frozenset[str]) -> int:
        number = self._numbers.get(names)
        if number is None and len(self.hca_sets) >= _MOST_SETS:
            self._numbers = renumber(self.hca_sets, self._columns.hcas)
        if number is None:
            number = self._numbers[names] = len(self.hca_sets)
            self.hca_sets.append(names)
        return number
