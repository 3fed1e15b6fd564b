"""Topology holes: the loss of gangs when a pod breaks a complete domain, one of which every GPU is free.

A gang needs the narrowest level whose largest domain holds it. Breaking one of n complete domains of that level costs
one n-th of the GPUs that such gangs ask for, and less if they want only a part of a domain. So breaking the last
complete leaf, spine or NVLink domain costs much, and breaking one of many costs little. Costs are in thousandths of a
GPU, as are all amounts of this plugin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gangline import BoolColumn, Domains, NodeView, Rows, Topology
from gangline_plugins.anti_fragmentation.capacity import Amounts, all_devices
from gangline_plugins.anti_fragmentation.gradient import Gradient, Values
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.node_devices import WHOLE

Shares = Mapping[int, float]
"""The GPUs of a whole gang, mapped to the fraction of all pods that belong to such gangs."""


@dataclass(frozen=True, slots=True, eq=False)
class Charges:
    """The cost of placing a pod with GPUs on each of some rows; the cost on all other rows is 0."""

    rows: Rows
    amounts: Values


NO_CHARGES = Charges(np.zeros(0, dtype=np.intp), np.zeros(0))


class Holes:
    """The complete domains, kept in step with a gradient, and the cost of breaking them."""

    def __init__(self, gradient: Gradient, columns: Columns, topology: Topology) -> None:
        self._gradient = gradient
        self._columns = columns
        self._topology = topology
        self._version = -1
        self._devices: Amounts = np.zeros(0, dtype=np.int64)
        """Thousandths of all devices of each node."""
        self._untouched: BoolColumn = np.zeros(0, dtype=np.bool_)
        """Nodes of which every GPU is free."""
        self._shares: Shares = {}
        self._chain: list[Domains] = []
        self._levels: Sequence[Domains] = ()
        self._charges: Charges | None = None

    def charges(self, nodes: NodeView, shares: Shares) -> Charges:
        """The charges by the present columns; `nodes` are all nodes, and the gradient is up to date."""
        if not shares or not self._topology.switches():  # a node alone is no domain that a pod could break
            return NO_CHARGES
        self._read(nodes)
        chain = self._topology.chain()
        if len(chain) != len(self._chain) or any(a is not b for a, b in zip(chain, self._chain, strict=True)):
            self._chain, self._levels, self._charges = chain, self._topology.switches(), None
        if shares is not self._shares:
            self._shares, self._charges = shares, None
        if self._charges is None:
            self._charges = self._work_out()
        return self._charges

    def _read(self, nodes: NodeView) -> None:
        """Note which nodes have a GPU in use now, or no longer, since the last call."""
        gradient = self._gradient
        if gradient.version == self._version and len(self._devices) == len(nodes):
            return
        if len(self._devices) != len(nodes):
            self._version, self._charges = -1, None
            self._devices = np.zeros(len(nodes), dtype=np.int64)
            self._untouched = np.zeros(len(nodes), dtype=np.bool_)
        rows = gradient.since(self._version)
        self._version = gradient.version
        if not len(rows):
            return
        devices = all_devices(nodes.at(rows), self._columns, self._gradient.offered)
        untouched = (devices > 0) & (gradient.free[rows].sum(axis=1) >= devices)
        if (devices != self._devices[rows]).any() or (untouched != self._untouched[rows]).any():
            self._devices[rows], self._untouched[rows] = devices, untouched
            self._charges = None

    def _work_out(self) -> Charges:
        amounts = np.zeros(len(self._devices))
        touched = (self._devices > 0) & ~self._untouched
        for level, cost in zip(self._levels, self._costs(), strict=True):
            if not cost:
                continue
            number = len(level)
            gpus = np.bincount(level.ids[self._inside(level, self._untouched)], minlength=number)
            broken = np.bincount(level.ids[self._inside(level, touched)], minlength=number)
            complete = (gpus > 0) & (broken == 0)
            left = int(complete.sum())
            if left:
                amounts += np.append(complete, False)[level.ids] * self._untouched * (cost / left)
        rows = np.flatnonzero(amounts)
        return Charges(rows, amounts[rows])

    def _costs(self) -> list[float]:
        """For each level, widest first, the loss of all gangs that need a complete domain of it."""
        most = [int(level.sums(self._devices).max(initial=0)) // WHOLE for level in self._levels]
        node = int(self._devices.max(initial=0)) // WHOLE
        costs = [0.0] * len(most)
        for gpus, share in self._shares.items():
            holding = [number for number, held in enumerate(most) if held >= gpus > node]
            if holding:
                costs[holding[-1]] += share * WHOLE * gpus * gpus / most[holding[-1]]
        return costs

    def _inside(self, level: Domains, nodes: BoolColumn) -> BoolColumn:
        inside: BoolColumn = nodes & (level.ids >= 0)
        return inside
