"""Whether a workload would find room: counted from what is free, without any scheduler's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gangline_e2e.day.ledger import Ledger
from gangline_e2e.day.workload import CORE, WHOLE, Workload

Column = NDArray[np.int64]
"""One entry per node."""


@dataclass(frozen=True, slots=True, eq=False)
class Floor:
    """Where the nodes are: for each node label a column with the number of each node's domain."""

    domains: Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a workload that decide whether it fits."""

    kind: str
    gpus: int
    milli: int
    size: int
    level: str
    part: str
    part_size: int

    @classmethod
    def of(cls, workload: Workload) -> Shape:
        """The shape of a workload."""
        kind = "claim" if workload.kind == "claim" else ""
        return cls(
            kind,
            workload.gpus,
            workload.milli,
            workload.size,
            workload.level,
            workload.part,
            workload.part_size,
        )


def places(shape: Shape, ledger: Ledger, promised: Column) -> Column:
    """How many pods of this shape each node could take; ``promised`` are free devices that are kept for others."""
    cores = (ledger.cores // (CORE * max(shape.gpus, 1))).astype(np.int64)
    if shape.milli < WHOLE:
        parts = (ledger.free // shape.milli).sum(axis=1) - promised * (WHOLE // shape.milli)
        return _there(ledger, parts, cores)
    free = ledger.free == WHOLE
    if shape.kind == "claim":  # ids that follow each other
        gpus = free.shape[1]
        masks = free @ (1 << np.arange(gpus))
        return _there(ledger, _runs(gpus, shape.gpus)[masks] - promised, cores)
    return _there(ledger, (free.sum(axis=1) - promised) // shape.gpus, cores)


def fits(shape: Shape, there: Column, floor: Floor, less: int = 0) -> bool:
    """Whether the pods of a workload have places by the rule of their gang, were ``less`` of the places gone."""
    if shape.part:
        parts = np.bincount(floor.domains[shape.part], there).astype(np.int64)
        whole = parts // shape.part_size
        above = floor.domains[shape.level] if shape.level else np.zeros_like(there)
        outer = np.zeros(len(parts), np.int64)
        outer[floor.domains[shape.part]] = above  # a domain of the parts lies in one of the level
        room = np.bincount(outer, whole) * shape.part_size
    elif shape.level:
        room = np.bincount(floor.domains[shape.level], there)
    else:
        room = np.array([there.sum()])
    return bool(room.max() - less >= shape.size)


def _there(ledger: Ledger, by_devices: Column, by_cores: Column) -> Column:
    return np.where(ledger.there, np.maximum(np.minimum(by_devices, by_cores), 0), 0)


@cache
def _runs(gpus: int, count: int) -> Column:
    """For each set of free devices, as a mask, how many times ``count`` with ids in a row are in it."""
    found = np.zeros(1 << gpus, np.int64)
    for mask in range(1 << gpus):
        length = 0
        for id in range(gpus):
            length = length + 1 if mask >> id & 1 else 0
            if length == count:
                found[mask], length = found[mask] + 1, 0
    return found
