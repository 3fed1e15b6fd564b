"""How much a placement adds to what no typical pod can use, for many nodes at once.

The fragmentation of a node (Weng et al., USENIX ATC'23) is the sum over typical pods of their popularity times the
thousandths of GPUs on the node that such a pod could not use: all that are free if it does not fit, else those on
devices with less free than it wants.

Rules:
- Fragmentation depends on free CPU only by which typical pods it is enough for, so popularity is summed up once per step
  of CPU, and on a device only by what is free of it, so that is one look-up per device.
- What a node is now is worked out once per change of the node, not per pod that is rated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, NodeView
from gangline_plugins.anti_fragmentation.capacity import Amounts, free_cpu, free_devices
from gangline_plugins.anti_fragmentation.typical import ANYWHERE, WHOLE, Typical, Where
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.links import MOST_DEVICES

Values = NDArray[np.float64]
_COUNT = 20
"""Bits below the number of devices in a look-up; 16 devices have at most 16,000 thousandths."""
_AMOUNT = (1 << _COUNT) - 1


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Nodes as they are, or would be; any leading shape."""

    model: Amounts
    """The number of the set of typical pods that may run on the node."""
    cpu: Amounts
    """Free milli-CPU."""
    total: Amounts
    """Free thousandths of all devices."""
    usable: Amounts
    """For each group of typical pods the free thousandths that it can use, and above _COUNT bits the devices."""


class Gradient:
    """Typical pods, grouped by what they want of devices, and the nodes as these see them."""

    def __init__(self, kinds: Typical, columns: Columns) -> None:
        self._columns = columns
        self._kinds = [(kind, popularity) for kind, popularity in kinds if kind.count]
        groups = dict.fromkeys((k.milli, k.count, k.where) for k, _ in self._kinds)
        self._group_of = {group: number for number, group in enumerate(groups)}
        self._milli = np.array([milli for milli, _, _ in groups], dtype=np.int64)
        self._count = np.array([count for _, count, _ in groups], dtype=np.int64)
        self._wheres: list[Where] = [w for w in dict.fromkeys(w for _, _, w in groups) if w != ANYWHERE]
        self._steps = np.unique(np.array([k.cpu for k, _ in self._kinds], dtype=np.int64))
        free = np.arange(WHOLE + 1)[:, None]
        self._look_up = np.where((free >= self._milli) & (free > 0), free + (1 << _COUNT), 0)
        self._models: dict[bytes, int] = {}
        self._reach = np.zeros((0, len(self._steps) + 1, len(groups)))
        self._objects: list[object] = []
        self._position = -1
        self._resize(0)

    def _resize(self, size: int) -> None:
        self.free: Amounts = np.zeros((size, MOST_DEVICES), dtype=np.int64)
        """Thousandths of each device."""
        self._model: Amounts = np.zeros(size, dtype=np.int64)
        self._cpu: Amounts = np.zeros(size, dtype=np.int64)
        self._total: Amounts = np.zeros(size, dtype=np.int64)
        self._usable: Amounts = np.zeros((size, len(self._milli)), dtype=np.int64)
        self.fragmentation: Values = np.zeros(size)
        """Of each node as it is, in thousandths of a GPU."""
        self._objects = [None] * size

    def refresh(self, nodes: NodeView) -> None:
        """Bring what is kept of each node up to date; `nodes` are all of them."""
        position = nodes.position
        if position == self._position:
            return
        changed = nodes.changed_since(self._position) if len(nodes) == len(self._total) else None
        if changed is None:
            self._resize(len(nodes))
            changed = nodes.rows
        self._position = position
        self._read(nodes.at(changed), changed)

    def _read(self, nodes: NodeView, rows: Amounts) -> None:
        if self._wheres or not self._models:
            self._read_models(nodes, rows)
        free = free_devices(nodes, self._columns)
        self.free[rows], self._cpu[rows] = free, free_cpu(nodes)
        self._total[rows] = free.sum(axis=1)
        self._usable[rows] = self._look_up[free].sum(axis=1)
        self.fragmentation[rows] = self.of(self.now(rows))

    def _read_models(self, nodes: NodeView, rows: Amounts) -> None:
        """Which typical pods may run on nodes that are new or were changed."""
        new = [i for i, row in enumerate(rows.tolist()) if self._objects[row] is not nodes.node(i)]
        if not new:
            return
        at = rows[new]
        view = nodes.at(at)
        for i, row in enumerate(at.tolist()):
            self._objects[row] = view.node(i)
        masks = np.array([where.matches(view) for where in self._wheres], dtype=np.bool_).reshape(-1, len(at)).T
        self._model[at] = [self._model_number(mask) for mask in masks]

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
                    reach[step:, self._group_of[kind.milli, kind.count, kind.where]] += popularity
            self._reach = np.concatenate([self._reach, reach[None]])
        return number

    # Rating

    def now(self, rows: Amounts) -> States:
        """Nodes as they are."""
        return States(self._model[rows], self._cpu[rows], self._total[rows], self._usable[rows])

    def without(self, states: States, cpu: int, taken: Amounts, milli: int) -> States:
        """Nodes less some CPU and so many thousandths of devices on which `taken` are free; -1 for no device.

        `taken` has one more dimension than the states, or two for several choices per node.
        """
        looked_up = self._look_up
        amount = np.where(taken >= milli, milli, 0)
        before = np.where(amount > 0, taken, 0)
        shape = amount.shape[:-1]
        lost = looked_up[before] - looked_up[before - amount]
        lost *= (amount > 0)[..., None]
        extra = (slice(None),) + (None,) * (len(shape) - 1)
        return States(
            np.broadcast_to(states.model[extra], shape),
            np.broadcast_to((states.cpu - cpu)[extra], shape),
            states.total[extra] - amount.sum(axis=-1),
            states.usable[(*extra, slice(None))] - lost.sum(axis=-2),
        )

    def of(self, states: States) -> Values:
        """The fragmentation in each state, in thousandths of a GPU."""
        if not len(self._milli):
            return states.total.astype(np.float64)
        step = np.searchsorted(self._steps, states.cpu, side="right")
        usable = (states.usable & _AMOUNT) * (states.usable >> _COUNT >= self._count)
        fragmentation: Values = states.total - np.einsum("...g,...g->...", self._reach[states.model, step], usable)
        return fragmentation
