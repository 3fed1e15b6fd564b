"""The columns of the device table, with one value, or one per device, for each row; only the table writes them.

Plugins judge all nodes at once, so each quantity is one array. The devices of a node are the bits of a number, so that
"free and healthy" is one operation for the whole cluster; columns with a value for each device have 16 places in each
row. The rows are those of the cluster's state: a node has the same row in all columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline import Rows
from gangline_plugins.gpu.links import MOST_DEVICES

NO_CLASS = -1
_INITIAL_CAPACITY = 64
Index = slice | Rows
_EMPTY = {"link_class": NO_CLASS, "replicas": 1, "heartbeat": np.inf, "lost": -np.inf}
"""What rows without a value have in these columns; in all others 0."""
_Value = TypeVar("_Value", bound=np.generic)


def _no_rows(dtype: type[_Value], *places: int) -> Callable[[], NDArray[_Value]]:
    return lambda: np.empty((0, *places), dtype)


_FLAGS, _MASKS, _NUMBERS, _TIMES = _no_rows(np.bool_), _no_rows(np.uint32), _no_rows(np.int32), _no_rows(np.float64)
_OF_DEVICES, _SMALL_OF_DEVICES = _no_rows(np.int32, MOST_DEVICES), _no_rows(np.int16, MOST_DEVICES)


@dataclass(eq=False)
class Columns:
    """Masks are uint32, with bit i for device i; per-device columns have 16 entries per row."""

    known: NDArray[np.bool_] = field(default_factory=_FLAGS)
    """Whether the node has a report that can be used."""
    unusable: NDArray[np.bool_] = field(default_factory=_FLAGS)
    """Whether the node has a report that cannot be used."""
    present: NDArray[np.uint32] = field(default_factory=_MASKS)
    healthy: NDArray[np.uint32] = field(default_factory=_MASKS)
    unknown: NDArray[np.uint32] = field(default_factory=_MASKS)
    """Devices of unknown health."""
    mig: NDArray[np.uint32] = field(default_factory=_MASKS)
    """Devices that are divided into MIG instances."""
    busy: NDArray[np.uint32] = field(default_factory=_MASKS)
    """Devices that have any pod."""
    whole: NDArray[np.uint32] = field(default_factory=_MASKS)
    """Devices that one pod has for itself, or that a scheduling map names."""
    link_class: NDArray[np.int32] = field(default_factory=_NUMBERS)
    milli: NDArray[np.int16] = field(default_factory=_SMALL_OF_DEVICES)
    """Free thousandths of each device."""
    memory: NDArray[np.int32] = field(default_factory=_OF_DEVICES)
    """Free MiB of each device."""
    memory_total: NDArray[np.int32] = field(default_factory=_OF_DEVICES)
    heartbeat: NDArray[np.float64] = field(default_factory=_TIMES)
    """The time of the last report, in seconds since the epoch; infinite without a report or without a time in
    it.
    """
    lost: NDArray[np.float64] = field(default_factory=_TIMES)
    """When it was noticed that the report of the node is gone, in seconds since the epoch. Infinite until somebody
    has looked at the time; -infinite for a node with a report, and for one that never had any.
    """
    replicas: NDArray[np.int32] = field(default_factory=_NUMBERS)
    """The replicas that the device plugin makes of each device; 1 if it makes none."""
    mps: NDArray[np.bool_] = field(default_factory=_FLAGS)
    """Whether the device plugin shares devices by MPS."""
    mig_single: NDArray[np.bool_] = field(default_factory=_FLAGS)
    """Whether `nvidia.com/gpu` stands for a MIG instance."""
    ports: NDArray[np.int32] = field(default_factory=_NUMBERS)
    """RDMA ports that are up."""
    cu_file: NDArray[np.bool_] = field(default_factory=_FLAGS)
    hcas: NDArray[np.int32] = field(default_factory=_NUMBERS)
    """The number of the node's set of RDMA adapters."""
    instances: dict[str, NDArray[np.int16]] = field(default_factory=dict)
    """For each MIG profile the number of instances on each node."""
    free_instances: dict[str, NDArray[np.int16]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.grow(_INITIAL_CAPACITY)

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
