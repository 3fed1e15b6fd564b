"""How many thousandths of each GPU of each node are free, and how many GPUs, and thousandths, a question asks for.

A *unit* is a whole GPU: a device of a driver for GPUs or, where devices consume counters, a counter set of such a
driver. A shared device is free as far as its scarcest capacity is, and a counter set as far as its counters are, on
average. Devices that several nodes may use, and devices with a taint that keeps pods away, are left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gangline.dra.candidates import MEANT, Candidates
from gangline.dra.losses import Losses
from gangline.dra.reading import CONSUMES, SHAREABLE, TAINTED
from gangline.dra.rows import RowColumn, RowNumbers, kinds
from gangline.dra.standing import IN_USE, TAKEN, Standing

WHOLE = 1000
"""Thousandths of a unit."""
MOST_UNITS = 16
"""Units of a node that are counted; further units are left out."""
DRIVERS = "gpu."
"""The names of drivers for GPUs begin with this: gpu.nvidia.com, gpu.amd.com."""
_MOST_KINDS = 64
"""Kinds of devices, at most, among which the smallest sufficient one is looked for."""

Thousandths = NDArray[np.int64]


class Units:
    """The units of all nodes; only nodes for which something has changed are counted again."""

    def __init__(self, standing: Standing, losses: Losses) -> None:
        self._standing = standing
        self._table = standing.table
        self._losses = losses
        ids = standing.table.ids
        self._are_gpus: RowColumn[np.bool_] = RowColumn(
            standing.table.rows, np.bool_, lambda rows: [ids[row][0].startswith(DRIVERS) for row in rows.tolist()]
        )
        self._position = -1
        self._free: Thousandths = np.zeros((0, MOST_UNITS), dtype=np.int64)
        self._total: Thousandths = np.zeros(0, dtype=np.int64)

    def free(self, size: int) -> Thousandths:
        """The free thousandths of each unit: `size` rows of nodes x MOST_UNITS. Callers may not write to the array."""
        self._refresh(size)
        return self._free[:size]

    def total(self, size: int) -> Thousandths:
        """The thousandths of all units of each node, free or not, for `size` rows of nodes."""
        self._refresh(size)
        return self._total[:size]

    def wanted(self, candidates: Candidates) -> tuple[int, int]:
        """How many units a question asks for, and how many thousandths of each; of different amounts the largest.

        Of a request with alternatives the first one counts, and of the devices that it means the smallest. Devices with
        equal capacities and counters count as one kind, though they may be different fractions of their pools' GPUs:
        then the fraction of the first one counts.
        """
        count, most, number = 0, 0, 0
        for request in [request for requests in candidates.ask.requests for request in requests]:
            first = request.alternatives[0]
            meant = np.flatnonzero((candidates.flags(number) & MEANT > 0) & self._are_gpus.values)
            if len(meant) and not first.is_admin and not first.is_all:
                count += first.count
                properties, traits = candidates.properties, self._table.traits[meant].astype(np.int64)
                _, first_of = kinds([traits, properties.consumption.codes[meant], properties.capacities.codes[meant]])
                parts = [
                    _asked(candidates, self._losses, number, row) for row in meant[first_of[:_MOST_KINDS]].tolist()
                ]
                most = max(most, min(parts))
            number += len(request.alternatives)
        return count, most

    def _refresh(self, size: int) -> None:
        touched = self._table.touched
        if touched.position == self._position and len(self._total) >= size:
            return
        is_kept = self._position >= 0 and len(self._total) >= size
        changed = touched.since(self._position, max(64, size // 4)) if is_kept else None
        if changed is None:
            self._free = np.zeros((size, MOST_UNITS), dtype=np.int64)
            self._total = np.zeros(size, dtype=np.int64)
        rows = np.arange(size) if changed is None else changed[0][changed[0] < size]
        if len(rows):
            self._count(rows)
        self._position = touched.position

    def _count(self, nodes: RowNumbers) -> None:
        table = self._table
        rows = table.rows_on(nodes.tolist())
        rows = rows[self._are_gpus.values[rows] & (table.traits[rows] & TAINTED == 0)]
        plain = rows[table.traits[rows] & CONSUMES == 0]
        where, left = [table.node[plain]], [self._left(plain)]
        for node in np.unique(table.node[rows[table.traits[rows] & CONSUMES > 0]]).tolist():  # nodes with partitions
            for placed in table.pools_of(node):
                if placed.pool.driver.startswith(DRIVERS):
                    fractions = self._losses.left(placed, node)
                    where.append(np.full(len(fractions), node))
                    left.append(_thousandths(fractions))
        of, free = np.concatenate(where), np.concatenate(left)
        order = np.argsort(of, kind="stable")
        of, free = of[order], free[order]
        rank = np.arange(len(of)) - np.searchsorted(of, of)
        of, free, rank = of[rank < MOST_UNITS], free[rank < MOST_UNITS], rank[rank < MOST_UNITS]
        self._free[nodes] = 0
        self._free[of, rank] = free
        self._total[nodes] = WHOLE * np.bincount(of, minlength=len(self._total))[nodes]

    def _left(self, rows: RowNumbers) -> Thousandths:
        """The free thousandths of devices that consume no counters."""
        states = self._standing.states[rows]
        found = np.full(len(rows), WHOLE, dtype=np.int64)
        shared = np.flatnonzero(states & IN_USE > 0)
        found[shared] = np.minimum(_thousandths(self._losses.rooms(rows[shared])), WHOLE - 1)
        found[states & TAKEN > 0] = 0
        return found


def _asked(candidates: Candidates, losses: Losses, number: int, row: int) -> int:
    """The thousandths of a unit that are taken if the device in this row is given for an alternative."""
    traits = candidates.table.traits_of(row)
    if traits & CONSUMES:
        part = losses.share(row)
    elif traits & SHAREABLE:
        consumed = candidates.consumed(number, row).values()
        part = max((amount.thousandths / has for amount, has in consumed if has > 0), default=1.0)
    else:
        part = 1.0
    return min(WHOLE, max(1, round(WHOLE * part)))


def _thousandths(fractions: NDArray[np.float64]) -> Thousandths:
    return np.rint(WHOLE * fractions).astype(np.int64)
