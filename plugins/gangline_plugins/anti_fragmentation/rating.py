"""From fragmentation to scores: which nodes, and which of their devices, are best for a pod of some kind.

Everything is in thousandths of a GPU: the gain is how much less can be used by nobody after the placement; *imbalance*
is what is left of GPUs without the CPU that typical pods take beside them, or of such CPU without GPUs; *leftover* is
both together, free GPUs and free CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangline import NodeView, Rows
from gangline_plugins.anti_fragmentation import published
from gangline_plugins.anti_fragmentation.capacity import Amounts
from gangline_plugins.anti_fragmentation.gradient import Gradient, Values
from gangline_plugins.anti_fragmentation.typical import ANYWHERE, WHOLE, Typical, cpu_per_gpu
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.links import MOST_DEVICES

_IMBALANCE = 0.5
"""What imbalance costs: about half of it will stay unused, for other pods take some of it up."""
_LEFTOVER = 0.01
"""What leftover costs: so little that it decides only among nodes that are otherwise alike, for the fullest."""
_NOTHING = 1e-6
_NONE = -1


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pod takes of a node."""

    cpu: int
    """Milli-CPU."""
    count: int = 0
    """GPUs."""
    milli: int = 0
    """Thousandths of each."""


class Balanced:
    """Gain less a charge on imbalance and on leftover."""

    def __init__(self, kinds: Typical, columns: Columns) -> None:
        self.gradient = Gradient(kinds, columns)
        ratio = cpu_per_gpu(kinds)
        self._gpu_per_cpu = 1.0 / ratio if ratio else 0.0

    def scores(self, asked: Asked, nodes: NodeView) -> Values:
        """0..100 for each node; without meaning where the pod does not fit."""
        rows = nodes.rows
        gradient = self.gradient
        now = gradient.now(rows)
        after = gradient.without(now, asked.cpu, _fullest(gradient.free[rows], asked), asked.milli)
        gain = gradient.fragmentation[rows] - gradient.of(after)
        cpu_before, cpu_after = now.cpu * self._gpu_per_cpu, after.cpu * self._gpu_per_cpu
        if self._gpu_per_cpu:
            gain -= _IMBALANCE * (np.abs(after.total - cpu_after) - np.abs(now.total - cpu_before))
        gain -= _LEFTOVER * (after.total + cpu_after)
        scores: Values = 50.0 + 50.0 * gain / (WHOLE + np.abs(gain))
        return scores

    def devices(self, asked: Asked, nodes: NodeView) -> tuple[int, ...]:
        """None: the device table takes the fullest devices, as is reckoned with here."""
        return ()


class Published:
    """The gain alone, as a whole number; of several devices the first with the best score."""

    def __init__(self, kinds: Typical, columns: Columns) -> None:
        self.gradient = Gradient(kinds, columns)
        self._kinds = kinds

    def scores(self, asked: Asked, nodes: NodeView) -> Values:
        """0..100 for each node; without meaning where the pod does not fit."""
        return self._by_device(asked, nodes).max(axis=1)

    def devices(self, asked: Asked, nodes: NodeView) -> tuple[int, ...]:
        """The devices to take on the only node of the view."""
        if asked.count == 1 and asked.milli < WHOLE:
            return (int(self._by_device(asked, nodes)[0].argmax()),)
        room = self.gradient.free[nodes.rows[0]] >= max(asked.milli, 1)
        return tuple(np.flatnonzero(room)[: asked.count].tolist())

    def _by_device(self, asked: Asked, nodes: NodeView) -> Values:
        """Nodes x choices; -1 for a device without room."""
        rows, gradient = nodes.rows, self.gradient
        free = gradient.free[rows]
        is_choice = asked.count == 1 and asked.milli < WHOLE
        taken = np.where(free >= asked.milli, free, _NONE)[:, :, None] if is_choice else _first(free, asked)[:, None]
        gain = gradient.fragmentation[rows][:, None] - gradient.of(
            gradient.without(gradient.now(rows), asked.cpu, taken, asked.milli)
        )
        room = (taken != _NONE).any(axis=2) if is_choice else np.ones(gain.shape, dtype=np.bool_)
        border, choice = np.nonzero((np.abs(gain) < _NOTHING) & room & (gradient.fragmentation[rows] > 0)[:, None])
        if len(border):
            device = choice if is_choice else None
            gain[border, choice] = self._exact_gain(asked, nodes.at(rows[border]), free[border], device)
        return np.where(room, published.score(gain), -1.0)

    def _exact_gain(self, asked: Asked, nodes: NodeView, free: Amounts, device: Rows | None) -> Values:
        """With the authors' rounding errors; rows of `nodes` may repeat."""
        allowed = np.ones((len(free), len(self._kinds)), dtype=np.bool_)
        for column, (kind, _) in enumerate(self._kinds):
            if kind.where != ANYWHERE:
                allowed[:, column] = kind.where.matches(nodes)
        after = free.copy()
        if device is not None:
            after[np.arange(len(free)), device] -= asked.milli
        else:
            whole = free >= asked.milli
            after -= asked.milli * (whole & (whole.cumsum(axis=1) <= asked.count))
        cpu = self.gradient.now(nodes.rows).cpu
        before = published.fragmentation(self._kinds, allowed, cpu, free)
        return before - published.fragmentation(self._kinds, allowed, cpu - asked.cpu, after)


def _fullest(free: Amounts, asked: Asked) -> Amounts:
    """What is free on the devices that the pod would get, nodes x count: the fullest that have room, as in the table."""
    if asked.milli == WHOLE or not asked.count:
        return _first(free, asked)
    room = np.where(free >= asked.milli, free, WHOLE + 1)
    if asked.count == 1:
        least = room.min(axis=1)[:, None]
    else:
        least = np.sort(room, axis=1)[:, : asked.count]
    return np.where(least > WHOLE, _NONE, least)


def _first(free: Amounts, asked: Asked) -> Amounts:
    """The same for whole devices, which are all alike."""
    left = (free >= max(asked.milli, 1)).sum(axis=1)[:, None] > np.arange(min(asked.count, MOST_DEVICES))
    return np.where(left, WHOLE, _NONE)
