"""The change in fragmentation that a placement causes, for many nodes at once.

The fragmentation of a node (Weng et al., USENIX ATC'23) is the sum over typical pods of their popularity times the
thousandths of GPUs on the node that such a pod could not use. These are all free thousandths if the pod does not fit;
else they are those on devices with less free than the pod wants.

Rules:
- Fragmentation depends on free CPU only through the set of typical pods for which the CPU is enough. So popularity is
  summed once per step of CPU. On a device it depends only on the free thousandths, which is one look-up per device.
- The present state of a node is computed once per change of the node, not per pod.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline import NODE, BoolColumn, Changes, NodeView, Rows
from gangline_plugins.anti_fragmentation.capacity import (
    Amounts,
    all_devices,
    free_cpu,
    free_cpu_of_one,
    free_devices,
    free_of_row,
)
from gangline_plugins.anti_fragmentation.offered import OfferedGpus
from gangline_plugins.anti_fragmentation.typical import ANYWHERE, Typical, Where
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.node_devices import WHOLE

Values = NDArray[np.float64]
Looks = NDArray[np.int32]
_COUNT = 20
"""Bits below the number of devices in a look-up; 16 devices have at most 16,000 thousandths."""
_AMOUNT = (1 << _COUNT) - 1
_UNREAD: object = object()


class States(NamedTuple):
    """The present or hypothetical state of nodes; one entry per node."""

    model: Amounts
    """The number of the set of typical pods that may run on the node."""
    cpu: Amounts
    """Free milli-CPU."""
    total: Amounts
    """Free thousandths of all devices."""
    usable: Looks
    """For each group of typical pods the free thousandths that it can use; the bits above _COUNT hold the number of
    devices.
    """

    def less(self, cpu: int, total: int, usable: Looks) -> States:
        """The states after a pod has taken these amounts."""
        return States(self.model, self.cpu - cpu, self.total - total, self.usable - usable)


class Gradient:
    """Typical pods, grouped by the devices that they want, and the state of each node for these groups."""

    def __init__(self, kinds: Typical, columns: Columns, offered: OfferedGpus | None = None) -> None:
        self._columns = columns
        self.offered = offered
        self._kinds = [(kind, popularity) for kind, popularity in kinds if kind.count]
        groups = dict.fromkeys((k.milli, k.count) for k, _ in self._kinds)
        self._group_of = {group: number for number, group in enumerate(groups)}
        self._milli = np.array([milli for milli, _ in groups], dtype=np.int32)
        self._count = np.array([count for _, count in groups], dtype=np.int32)
        self._wheres: list[Where] = [w for w in dict.fromkeys(k.where for k, _ in self._kinds) if w != ANYWHERE]
        self._steps = np.unique(np.array([k.cpu for k, _ in self._kinds], dtype=np.int64))
        self._step_list: list[int] = self._steps.tolist()
        free = np.arange(WHOLE + 1, dtype=np.int32)[:, None]
        self.seen = np.where((free >= self._milli) & (free > 0), free + (1 << _COUNT), 0)
        """For each number of free thousandths of a device how much each group can use of it, 1,001 x groups, as
        `States.usable`.
        """
        self._models: dict[bytes, int] = {}
        """The number of each set of constraints that some node meets; each set counts as a model of its own."""
        self._reach = np.zeros((0, len(self._steps) + 1, len(groups)))
        """For each model and step of CPU: the popularity of the pods of each group for which so much CPU is enough."""
        self._objects: list[object] = []
        self._position = -1
        self._of_claims = -1
        """How far the log of the devices that drivers offer and claims take has been read."""
        self.version = 0
        """Grows with every change of a node."""
        self._latest: Rows = np.zeros(0, dtype=np.intp)
        """The nodes that changed in this version."""
        self.repriced = Changes()
        """A log in which each change of prices is noted for every node."""
        self._has_new_prices = False
        self._resize(0)

    def _resize(self, size: int) -> None:
        self.changed_in: Amounts = np.zeros(size, dtype=np.int64)
        """The version in which each node changed last."""
        self.free: Amounts = np.zeros((size, MOST_DEVICES), dtype=np.int64)
        """Thousandths of each device."""
        self._model: Amounts = np.zeros(size, dtype=np.int64)
        self._cpu: Amounts = np.zeros(size, dtype=np.int64)
        self._total: Amounts = np.zeros(size, dtype=np.int64)
        self._usable: Looks = np.zeros((size, len(self._milli)), dtype=np.int32)
        self._supply: Amounts = np.zeros(size, dtype=np.int64)
        self.fragmentation: Values = np.zeros(size)
        """The fragmentation of each node as it is, in thousandths of a GPU."""
        self.prices: Values = np.ones(size)
        """For each node the demand for GPUs of its model, for each such GPU; 1 is the mean of the cluster."""
        self._objects = [_UNREAD] * size

    def refresh(self, nodes: NodeView) -> None:
        """Update the state of each node; `nodes` are all nodes."""
        position, of_claims = nodes.position, self.offered.changes.position if self.offered is not None else -1
        if position == self._position and of_claims == self._of_claims:
            return
        changed, kinds = self._changed(nodes) if len(nodes) == len(self._total) else (None, NODE)
        if changed is None:
            self._resize(len(nodes))
            changed, kinds = nodes.rows, NODE
        self._position, self._of_claims = position, of_claims
        if len(changed):
            self._read(nodes.at(changed), changed, bool(kinds & NODE))

    def since(self, version: int) -> Rows:
        """The nodes that have changed since a version."""
        return self._latest if version == self.version - 1 else np.flatnonzero(self.changed_in > version)

    def _changed(self, nodes: NodeView) -> tuple[Rows | None, int]:
        """The rows that have changed since the last refresh, None for all, and the kinds of these changes."""
        changed, kinds = nodes.changed_since(self._position), nodes.kinds_since(self._position)
        if self.offered is None or self.offered.changes.position == self._of_claims or changed is None:
            return changed, kinds
        taken = self.offered.changes.since(self._of_claims, len(nodes))
        if taken is None:
            return None, NODE
        return np.union1d(changed, taken[0][taken[0] < len(nodes)]), kinds | NODE

    def _read(self, nodes: NodeView, rows: Amounts, are_others: bool) -> None:
        """Read these rows; `are_others` if more than the pods on them may have changed."""
        self.version += 1
        self.changed_in[rows] = self.version
        self._latest = rows
        if are_others and (self._wheres or not self._models):
            self._read_models(nodes, rows)
        if len(rows) == 1 and (self.offered is None or self.offered.is_empty):
            self._read_row(nodes, int(rows[0]))
        else:
            self._read_rows(nodes, rows)
        if are_others and self._wheres:
            self._reprice(nodes, rows)

    def _read_rows(self, nodes: NodeView, rows: Amounts) -> None:
        free, cpu = free_devices(nodes, self._columns, self.offered), free_cpu(nodes)
        total = np.add.reduce(free, axis=1)
        usable: Looks = np.add.reduce(self.seen[free], axis=1, dtype=np.int32)
        self.free[rows], self._cpu[rows], self._total[rows], self._usable[rows] = free, cpu, total, usable
        self.fragmentation[rows] = self.of(States(self._model[rows], cpu, total, usable))

    def _read_row(self, nodes: NodeView, row: int) -> None:
        """As `_read_rows`, for the only node of the view: most decisions change one node, and plain numbers take a
        third of the time.
        """
        free, cpu = free_of_row(nodes, row, self._columns), free_cpu_of_one(nodes)
        total = sum(free)
        self.free[row] = free
        usable: Looks = np.add.reduce(self.seen.take(self.free[row], axis=0), axis=0, dtype=np.int32)
        self._cpu[row], self._total[row], self._usable[row] = cpu, total, usable
        unused = 0.0
        if len(self._milli):
            reach = self._reach[self._model[row], bisect_right(self._step_list, cpu)]
            unused = np.vecdot(reach, (usable & _AMOUNT) * (usable >> _COUNT >= self._count))
        self.fragmentation[row] = total - unused

    def _reprice(self, nodes: NodeView, rows: Amounts) -> None:
        """Compute prices anew if models or their numbers of devices changed; without constraints all prices are
        equal.
        """
        supply = all_devices(nodes, self._columns, self.offered)
        if (supply != self._supply[rows]).any():
            self._supply[rows] = supply
            self._has_new_prices = True
        if self._has_new_prices:
            self._has_new_prices = False
            self.prices = self._prices()[self._model]
            self.repriced.note_all()

    def _prices(self) -> Values:
        """The price of each model: demand divided by supply. A pod that accepts several models spreads its demand over
        them.
        """
        supply = np.bincount(self._model, weights=self._supply, minlength=len(self._models))
        met = np.array([np.frombuffer(key, dtype=np.bool_) for key in self._models])
        will_do = {ANYWHERE: np.ones(len(met), dtype=np.bool_), **dict(zip(self._wheres, met.T, strict=True))}
        demand = dict.fromkeys(will_do, 0.0)
        for kind, popularity in self._kinds:
            demand[kind.where] += popularity * kind.count * kind.milli
        prices: Values = np.zeros(len(met))
        total = 0.0
        for where, models in will_do.items():
            choice = float(supply[models].sum())
            if choice:
                prices[models] += demand[where] / choice
                total += demand[where]
        return prices * (float(supply.sum()) / total) if total else np.ones(len(met))

    def _read_models(self, nodes: NodeView, rows: Amounts) -> None:
        """Find the typical pods that may run on new or changed nodes."""
        if not self._wheres:  # typical pods accept all nodes
            self._model[rows] = self._model_number(np.zeros(0, dtype=np.bool_))
            return
        new = [i for i, row in enumerate(rows.tolist()) if self._objects[row] is not nodes.node(i)]
        if not new:
            return
        at = rows[new]
        view = nodes.at(at)
        for i, row in enumerate(at.tolist()):
            self._objects[row] = view.node(i)
        masks = np.array([where.matches(view) for where in self._wheres], dtype=np.bool_).reshape(-1, len(at)).T
        self._model[at] = [self._model_number(mask) for mask in masks]
        self._has_new_prices = True

    def _model_number(self, mask: BoolColumn) -> int:
        """The number of a set of constraints that a node meets."""
        key = mask.tobytes()
        number = self._models.get(key)
        if number is None:
            number = self._models[key] = len(self._models)
            met = dict(zip(self._wheres, mask.tolist(), strict=True))
            reach = np.zeros(self._reach.shape[1:])
            for kind, popularity in self._kinds:
                if kind.where == ANYWHERE or met[kind.where]:
                    step = int(np.searchsorted(self._steps, kind.cpu)) + 1
                    reach[step:, self._group_of[kind.milli, kind.count]] += popularity
            self._reach = np.concatenate([self._reach, reach[None]])
        return number

    # Rating

    def now(self, index: slice | Rows) -> States:
        """The present states of nodes."""
        return States(self._model[index], self._cpu[index], self._total[index], self._usable[index])

    def of(self, states: States) -> Values:
        """The fragmentation in each state, in thousandths of a GPU."""
        if not len(self._milli):
            return states.total.astype(np.float64)
        step = self._steps.searchsorted(states.cpu, side="right")
        usable = (states.usable & _AMOUNT) * (states.usable >> _COUNT >= self._count)
        fragmentation: Values = states.total - np.vecdot(self._reach[states.model, step], usable)
        return fragmentation

    def free_of(self, row: int) -> tuple[int, int]:
        """Free milli-CPU and free thousandths of all devices of one node."""
        return self._cpu.item(row), self._total.item(row)

    def of_row(self, row: int, cpu: int, total: int, taken: int) -> float:
        """As `of`, for one node with so much left, after a pod has taken this number of whole devices."""
        if not len(self._milli):
            return float(total)
        usable = self._usable[row] - self.seen[WHOLE] * np.int32(taken)
        reach = self._reach[self._model.item(row), bisect_right(self._step_list, cpu)]
        unused: float = np.vecdot(reach, (usable & _AMOUNT) * (usable >> _COUNT >= self._count)).item()
        return total - unused
