"""The policies that are compared: published baselines as small plugins, and AntiFragmentation in both its ways.

Where no plugin scores, the first feasible node in order is taken. Devices are those that the device table chooses, the
fullest that have room, unless said otherwise.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from gangline import Cycle, Handle, NodeView, PodInfo, ScoreColumn, hookimpl
from gangline.state.requests import CPU
from gangline_plugins.anti_fragmentation import AntiFragmentation
from gangline_plugins.anti_fragmentation.capacity import Amounts, free_cpu, free_devices
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.node_devices import WHOLE
from gangline_plugins.gpu.wants import Want

_MOST_CPU, _MOST_GPU = 128_000, 8_000
"""The milli-CPU and the thousandths of GPUs of the largest node."""


class _Policy:
    """What the baselines share: the amounts of a pod, and the free amounts of nodes."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._table = device_table(handle.state)

    def _asked(self, pod: PodInfo) -> tuple[int, int, int]:
        """The milli-CPU and GPUs that a pod asks for, and the thousandths of each GPU."""
        want = self._table.wants.of(pod)
        cpu = pod.cls.requests.real.get(CPU, 0)
        return (cpu, want.count, want.milli or WHOLE) if isinstance(want, Want) else (cpu, 0, 0)

    def _free(self, nodes: NodeView) -> Amounts:
        return free_devices(nodes, self._table.columns)


class RandomDevice(_Policy):
    """Gives a pod that wants a part of a device a random one of those with room."""

    name = "RandomDevice"

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._chance = random.Random(1)

    @hookimpl
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """Give the pod a random device with room instead of the chosen one."""
        _, count, milli = self._asked(pod)
        if count != 1 or milli == WHOLE:
            return
        chosen = self._table.allocation(pod.uid)
        assert chosen is not None
        free = self._table.columns.milli[pod.row].astype(np.int64)
        free[list(chosen.ids)] += milli
        room = np.flatnonzero(free >= milli).tolist()
        self._chance.shuffle(room)
        for id in room:
            if self._table.move(pod, [id]) is not None:
                return


class BestFit(_Policy):
    """Prefers the node on which least CPU and GPU is left."""

    name = "BestFit"

    @hookimpl
    def score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """0 to 100: CPU and GPUs that are left count half each, as fractions of the largest node."""
        cpu, count, milli = self._asked(pod)
        cpu_left, gpu_left = free_cpu(nodes) - cpu, self._free(nodes).sum(axis=1) - count * milli
        return np.trunc(100.0 * (1.0 - 0.5 * cpu_left / _MOST_CPU - 0.5 * gpu_left / _MOST_GPU)).clip(0, 100)


class MostAllocated(_Policy):
    """Prefers the node of which the largest fraction is then in use."""

    name = "MostAllocated"

    @hookimpl
    def score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """0 to 100: CPU and GPUs in use count half each, as fractions of the node itself."""
        cpu, count, milli = self._asked(pod)
        cpu_left, gpu_left = free_cpu(nodes) - cpu, self._free(nodes).sum(axis=1) - count * milli
        all_cpu = np.maximum(nodes.allocatable(CPU), 1)
        all_gpu = np.maximum(np.bitwise_count(self._table.columns.present[nodes.index]).astype(np.int64) * WHOLE, 1)
        return np.trunc(50.0 * (1.0 - cpu_left / all_cpu) + 50.0 * (1.0 - gpu_left / all_gpu)).clip(0, 100)


class GpuPacking(_Policy):
    """Prefers devices in use to free ones, and free devices of used nodes to those of idle nodes."""

    name = "GpuPacking"

    @hookimpl
    def score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """0 to 100. Source: gpu_packing_score.go of the authors' simulator."""
        _, count, milli = self._asked(pod)
        if not count:
            return np.zeros(len(nodes))
        free = self._free(nodes)
        present = np.bitwise_count(self._table.columns.present[nodes.index]).astype(np.int64)
        whole = (free == WHOLE).sum(axis=1)
        taken = np.sort(np.where(free >= milli, free, WHOLE + 1), axis=1)[:, :count]
        whole_taken = (taken == WHOLE).sum(axis=1)
        used = np.maximum(100 - (taken * 100 // WHOLE).sum(axis=1) // 10, 50)
        score = np.where(whole_taken > 0, np.maximum(50 - whole_taken, 33), used)
        return np.where(whole == present, np.maximum(33 - whole, whole), score).clip(0, 100).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Policy:
    """Plugins and how ties are broken."""

    plugins: tuple[type[Any], ...]
    score: str = ""
    """The argument `score` of AntiFragmentation."""
    is_random: bool = False
    """Whether ties are broken at random, not by the order of nodes."""
    learns: bool = False
    """Whether AntiFragmentation gets no typical pods, and counts the pods that come instead."""
    order: str = ""
    """The order in which DynamicResources gives devices; "" if pods ask for GPUs without ResourceClaims."""


POLICIES = {
    "Random": Policy((RandomDevice,), is_random=True),
    "FirstFit": Policy(()),
    "BestFit": Policy((BestFit,)),
    "MostAllocated": Policy((MostAllocated,)),
    "GpuPacking": Policy((GpuPacking,)),
    "FGD": Policy((AntiFragmentation,), "published"),
    "FGD-RandomTies": Policy((AntiFragmentation,), "published", is_random=True),
    "Balanced": Policy((AntiFragmentation,), "balanced"),
    "Balanced-RandomTies": Policy((AntiFragmentation,), "balanced", is_random=True),
    "Balanced-Learning": Policy((AntiFragmentation,), "balanced", learns=True),
    "Claims-FirstFit": Policy((), order="upstream"),
    "Claims-Upstream": Policy((AntiFragmentation,), "balanced", order="upstream"),
    "Claims": Policy((AntiFragmentation,), "balanced", order="best"),
}
