"""The columns of the device table, with one value, or one per device, for each row; only the table writes them.

Plugins judge all nodes at once, so each quantity is one array. The devices of a node are the bits of a number, so that
"free and healthy" is one operation for the whole cluster; columns with a value for each device have 16 places in each
row. The rows are those of the cluster's state: a node has the same row in all columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline import Rows
from gangline_plugins.gpu.links import MOST_DEVICES

NO_CLASS = -1
_INITIAL_CAPACITY = 64
Index = slice | Rows
_EMPTY = {"link_class": NO_CLASS, "replicas": 1, "heartbeat": np.inf, "lost": -np.inf}


class Columns:
    """Masks are uint32, with bit i for device i; per-device columns have 16 entries per row."""

    known: NDArray[np.bool_]
    """Whether the node has a report that can be used."""
    unusable: NDArray[np.bool_]
    """Whether the node has a report that cannot be used."""
    present: NDArray[np.uint32]
    healthy: NDArray[np.uint32]
    unknown: NDArray[np.uint32]
    """Devices of unknown health."""
    mig: NDArray[np.uint32]
    """Devices that are divided into MIG instances."""
    busy: NDArray[np.uint32]
    """Devices that have any pod."""
    whole: NDArray[np.uint32]
    """Devices that one pod has for itself, or that a scheduling map names."""
    link_class: NDArray[np.int32]
    milli: NDArray[np.int16]
    """Free thousandths of each device."""
    memory: NDArray[np.int32]
    """Free MiB of each device."""
    memory_total: NDArray[np.int32]
    heartbeat: NDArray[np.float64]
    """The time of the last report, in seconds since the epoch; infinite without a report or without a time in
    it.
    """
    lost: NDArray[np.float64]
    """When it was noticed that the report of the node is gone, in seconds since the epoch. Infinite until somebody
    has looked at the time; -infinite for a node with a report, and for one that never had any.
    """
    replicas: NDArray[np.int32]
    """The replicas that the device plugin makes of each device; 1 if it makes none."""
    mps: NDArray[np.bool_]
    """Whether the device plugin shares devices by MPS."""
    mig_single: NDArray[np.bool_]
    """Whether `nvidia.com/gpu` stands for a MIG instance."""
    ports: NDArray[np.int32]
    """RDMA ports that are up."""
    cu_file: NDArray[np.bool_]
    hcas: NDArray[np.int32]
    """The number of the node's set of RDMA adapters."""
    instances: dict[str, NDArray[np.int16]]
    """For each MIG profile the number of instances on each node."""
    free_instances: dict[str, NDArray[np.int16]]

    def __init__(self) -> None:
        capacity = _INITIAL_CAPACITY
        self.known = np.zeros(capacity, dtype=np.bool_)
        self.unusable = np.zeros(capacity, dtype=np.bool_)
        self.present = np.zeros(capacity, dtype=np.uint32)
        self.healthy = np.zeros(capacity, dtype=np.uint32)
        self.unknown = np.zeros(capacity, dtype=np.uint32)
        self.mig = np.zeros(capacity, dtype=np.uint32)
        self.busy = np.zeros(capacity, dtype=np.uint32)
        self.whole = np.zeros(capacity, dtype=np.uint32)
        self.link_class = np.full(capacity, NO_CLASS, dtype=np.int32)
        self.milli = np.zeros((capacity, MOST_DEVICES), dtype=np.int16)
        self.memory = np.zeros((capacity, MOST_DEVICES), dtype=np.int32)
        self.memory_total = np.zeros((capacity, MOST_DEVICES), dtype=np.int32)
        self.heartbeat = np.full(capacity, np.inf)
        self.lost = np.full(capacity, -np.inf)
        self.replicas = np.ones(capacity, dtype=np.int32)
        self.mps = np.zeros(capacity, dtype=np.bool_)
        self.mig_single = np.zeros(capacity, dtype=np.bool_)
        self.ports = np.zeros(capacity, dtype=np.int32)
        self.cu_file = np.zeros(capacity, dtype=np.bool_)
        self.hcas = np.zeros(capacity, dtype=np.int32)
        self.instances = {}
        self.free_instances = {}

    @property
    def capacity(self) -> int:
        """The number of rows that the columns hold."""
        return len(self.known)

    def grow(self, rows: int) -> None:
        """Extend the columns to at least so many rows."""
        capacity = max(rows, 2 * self.capacity)
        for name, column in list(vars(self).items()):
            if isinstance(column, dict):
                setattr(self, name, {key: _grown(each, capacity, 0) for key, each in column.items()})
            else:
                setattr(self, name, _grown(column, capacity, _EMPTY.get(name, 0)))

    def profile(self, name: str) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """All instances of a MIG profile and the free ones, to read; columns of zeros if no node has any."""
        if name not in self.instances:  # a pod may name any profile, so no column is made for it
            none = np.zeros(self.capacity, dtype=np.int16)
            return none, none
        return self.instances[name], self.free_instances[name]

    def set_instances(self, row: int, name: str, total: int, free: int) -> None:
        """Set the numbers of all and of free instances of a MIG profile on a node."""
        if name not in self.instances:
            self.instances[name] = np.zeros(self.capacity, dtype=np.int16)
            self.free_instances[name] = np.zeros(self.capacity, dtype=np.int16)
        self.instances[name][row] = total
        self.free_instances[name][row] = free


def _grown(column: NDArray[Any], capacity: int, fill: float) -> NDArray[Any]:
    grown = np.full((capacity, *column.shape[1:]), fill, dtype=column.dtype)
    grown[: len(column)] = column
    return grown
