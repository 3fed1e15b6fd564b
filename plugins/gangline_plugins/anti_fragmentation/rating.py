"""Scores from fragmentation: the best nodes, and the best of their devices, for a pod of some kind.

All values are in thousandths of a GPU. The *gain* is the decrease in GPUs that no typical pod can use. The *imbalance*
is the free GPUs without the CPU that typical pods take with them, or such CPU without GPUs. The *scarcity* is the
demand for GPUs of a model above the mean demand. The *leftover* is the free GPUs and CPU together.
"""

from __future__ import annotations

import msgspec
import numpy as np

from gangline import BoolColumn, NodeView, Rows
from gangline_plugins.anti_fragmentation import published
from gangline_plugins.anti_fragmentation.capacity import Amounts
from gangline_plugins.anti_fragmentation.gradient import Gradient, Looks, Values
from gangline_plugins.anti_fragmentation.offered import OfferedGpus
from gangline_plugins.anti_fragmentation.typical import ANYWHERE, Typical, cpu_per_gpu
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.node_devices import WHOLE

_IMBALANCE = 0.5
"""The weight of imbalance: other pods will use about half of it, so the other half stays unused."""
_SCARCITY = 1.0
"""The weight of taking GPUs of a model for which demand is above the mean."""
_LEFTOVER = 0.01
"""The weight of leftover, so small that it only decides between nodes that are otherwise equal: for the fullest."""
_NOTHING = 1e-6
_NO_DEVICES: Amounts = np.zeros((0, MOST_DEVICES), dtype=np.int64)


def score_of(worth: Values) -> Values:
    """0 to 100; above 50 for a positive worth."""
    scores: Values = 50.0 + 50.0 * worth / (WHOLE + np.abs(worth))
    return scores


def worth_of(scores: Values) -> Values:
    """The inverse of `score_of`."""
    part = (scores - 50.0) / 50.0
    worth: Values = WHOLE * part / (1.0 - np.abs(part))
    return worth


class AskedAmounts(msgspec.Struct, frozen=True):
    """The amounts that a pod takes of a node."""

    cpu: int
    """Milli-CPU."""
    count: int = 0
    """GPUs."""
    milli: int = 0
    """Thousandths of each GPU."""

    @property
    def total(self) -> int:
        """Thousandths of all its GPUs."""
        return self.count * self.milli

    @property
    def is_part(self) -> bool:
        """Whether the choice of devices makes a difference."""
        return 0 < self.milli < WHOLE


class Balanced:
    """The gain less charges for imbalance, scarce models and leftover."""

    def __init__(self, kinds: Typical, columns: Columns, offered: OfferedGpus | None = None) -> None:
        self.gradient = Gradient(kinds, columns, offered)
        ratio = cpu_per_gpu(kinds)
        self._gpu_per_cpu = 1.0 / ratio if ratio else 0.0

    def scores(self, asked: AskedAmounts, nodes: NodeView) -> Values:
        """0 to 100 for each node; undefined where the pod does not fit."""
        if len(nodes) == 1 and not asked.is_part:
            return np.array([self._score_of_row(asked, nodes.first)])
        index, gradient = nodes.index, self.gradient
        now = gradient.now(index)
        after = now.less(asked.cpu, asked.total, _lost_at(gradient, index, asked))
        worth = gradient.fragmentation[index] - gradient.of(after)
        cpu_now, cpu_after = now.cpu * self._gpu_per_cpu, after.cpu * self._gpu_per_cpu
        if self._gpu_per_cpu:
            worth -= _IMBALANCE * (np.abs(after.total - cpu_after) - np.abs(now.total - cpu_now))
        if asked.count:
            worth -= _SCARCITY * asked.total * (gradient.prices[index] - 1.0)
        worth -= _LEFTOVER * (after.total + cpu_after)
        return score_of(worth)

    def _score_of_row(self, asked: AskedAmounts, row: int) -> float:
        """As `scores`, for one node and whole devices, in plain numbers: nearly every decision asks for one node."""
        gradient = self.gradient
        cpu, total = gradient.free_of(row)
        cpu_after, total_after = cpu - asked.cpu, total - asked.total
        worth = gradient.fragmentation.item(row) - gradient.of_row(row, cpu_after, total_after, asked.count)
        gpus_of_cpu, gpus_of_rest = cpu * self._gpu_per_cpu, cpu_after * self._gpu_per_cpu
        if self._gpu_per_cpu:
            worth -= _IMBALANCE * (abs(total_after - gpus_of_rest) - abs(total - gpus_of_cpu))
        if asked.count:
            worth -= _SCARCITY * asked.total * (gradient.prices.item(row) - 1.0)
        worth -= _LEFTOVER * (total_after + gpus_of_rest)
        return 50.0 + 50.0 * worth / (WHOLE + abs(worth))

    def devices(self, asked: AskedAmounts, nodes: NodeView) -> tuple[int, ...]:
        """None: the device table takes the fullest devices, as this score assumes."""
        return ()


class Published:
    """The gain alone, as a whole number; among several devices the first with the best score."""

    def __init__(self, kinds: Typical, columns: Columns, offered: OfferedGpus | None = None) -> None:
        self.gradient = Gradient(kinds, columns, offered)
        self._kinds = kinds

    def scores(self, asked: AskedAmounts, nodes: NodeView) -> Values:
        """0 to 100 for each node; undefined where the pod does not fit."""
        rows = nodes.rows
        free = self.gradient.free[rows]
        if asked.is_part and asked.count == 1:
            best: Values = self._by_device(asked, nodes, free).max(axis=1)
            return best
        taken = self._first(asked, free)
        return self._rated(asked, nodes, free, taken, _lost(self.gradient, free, asked))

    def devices(self, asked: AskedAmounts, nodes: NodeView) -> tuple[int, ...]:
        """The devices to take on the only node of the view."""
        free = self.gradient.free[nodes.rows]
        if asked.is_part and asked.count == 1:
            return (int(self._by_device(asked, nodes, free)[0].argmax()),)
        return tuple(np.flatnonzero(self._first(asked, free)[0]).tolist())

    def _first(self, asked: AskedAmounts, free: Amounts) -> BoolColumn:
        """The devices that a pod takes if it does not choose, nodes x 16."""
        room = free >= max(asked.milli, 1)
        first: BoolColumn = room & (room.cumsum(axis=1) <= asked.count)
        return first

    def _by_device(self, asked: AskedAmounts, nodes: NodeView, free: Amounts) -> Values:
        """The score for each device, nodes x 16; -1 for a device without room."""
        at, device = np.nonzero(free >= asked.milli)
        scores = np.full(free.shape, -1.0)
        if len(at):
            chosen = free[at, device]
            lost = self.gradient.seen[chosen] - self.gradient.seen[chosen - asked.milli]
            taken = np.arange(MOST_DEVICES) == device[:, None]
            scores[at, device] = self._rated(asked, nodes.at(nodes.rows[at]), free[at], taken, lost)
        return scores

    def _rated(self, asked: AskedAmounts, nodes: NodeView, free: Amounts, taken: BoolColumn, lost: Looks) -> Values:
        """The scores of nodes, which may be repeated, after the pod takes its share of the devices `taken`."""
        rows, gradient = nodes.rows, self.gradient
        now = gradient.now(rows)
        before = gradient.fragmentation[rows]
        gain = before - gradient.of(now.less(asked.cpu, asked.total, lost))
        border = np.flatnonzero((np.abs(gain) < _NOTHING) & (before > 0))
        if len(border):
            allowed = self._allowed(nodes.at(rows[border]))
            cpu, free = now.cpu[border], free[border]
            exact = published.fragmentation(self._kinds, allowed, cpu, free)
            free = free - asked.milli * taken[border]
            gain[border] = exact - published.fragmentation(self._kinds, allowed, cpu - asked.cpu, free)
        return published.score(gain)

    def _allowed(self, nodes: NodeView) -> BoolColumn:
        """Which typical pods may run where, nodes x kinds."""
        allowed = np.ones((len(nodes), len(self._kinds)), dtype=np.bool_)
        for column, (kind, _) in enumerate(self._kinds):
            if kind.where != ANYWHERE:
                allowed[:, column] = kind.where.matches(nodes)
        return allowed


def _lost_at(gradient: Gradient, index: slice | Rows, asked: AskedAmounts) -> Looks:
    """As `_lost`, on nodes as they are; the devices are read only if the choice among them makes a difference."""
    return _lost(gradient, gradient.free[index] if asked.is_part else _NO_DEVICES, asked)


def _lost(gradient: Gradient, free: Amounts, asked: AskedAmounts) -> Looks:
    """The amount that each group of typical pods can no longer use if the pod gets the fullest devices with room."""
    lost: Looks
    if not asked.is_part:
        lost = gradient.seen[WHOLE] * np.int32(asked.count)
        return lost
    room = np.where(free >= asked.milli, free, WHOLE)
    if asked.count == 1:
        chosen = room.min(axis=1)
        lost = gradient.seen[chosen] - gradient.seen[chosen - asked.milli]
        return lost
    chosen = np.sort(room, axis=1)[:, : asked.count]
    lost = (gradient.seen[chosen] - gradient.seen[chosen - asked.milli]).sum(axis=1, dtype=np.int32)
    return lost
