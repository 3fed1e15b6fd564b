"""For which devices enough is left of the counters that they consume, as a column over the table.

What is left belongs to a pool, and devices of one pool that consume the same are judged together. Pools that are alike,
and of which as much is left, share the verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from gangline.dra.placed import PlacedPool
from gangline.dra.pools import PoolCondition
from gangline.dra.properties import Properties
from gangline.dra.reading import CONSUMES, consumption
from gangline.dra.rows import RowNumbers, grown
from gangline.dra.standing import Left, Standing
from gangline.sizes import BoundedCache

LACKS = 0
"""Not enough is left for the device."""
SUFFICES = 1
"""Enough is left."""
DEPENDS = 2
"""A device of the pool consumes a negative amount, so more may be left after devices are given."""
Verdicts = NDArray[np.int8]
_MOST_BYTES = 8 << 20
"""The memory of the verdicts on pools that are alike."""
_POOL_BYTES = 500
_COUNTER_BYTES = 150
_PoolState = tuple[bytes, tuple[tuple[tuple[str, str], int], ...]]
"""What the devices of a pool consume, and what is left of its counters."""


class CounterRoom:
    """The devices whose counters suffice. Only nodes for whose devices something has changed are looked at again."""

    def __init__(self, standing: Standing, properties: Properties, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises DeadlineExceeded when the time of a question has passed."""
        self._standing = standing
        self._table = standing.table
        self._properties = properties
        self._check = check
        self._position = -1
        self._pending: dict[PlacedPool, None] = {}
        """Pools that have changed and are yet to be evaluated: time may run out in between."""
        self._cells: Verdicts = np.zeros(0, dtype=np.int8)
        self._known: BoundedCache[_PoolState, Verdicts] = BoundedCache(
            _MOST_BYTES, lambda key, found: _POOL_BYTES + len(key[0]) + _COUNTER_BYTES * len(key[1]) + found.nbytes
        )

    @property
    def values(self) -> Verdicts:
        """By row: whether what is left of counters suffices for the device, as the only one that is given: LACKS,
        SUFFICES or DEPENDS.

        It means nothing for devices without counters, and for those that several nodes may use. Nobody may write to the
        column, and it holds only until the next change. Raises DeadlineExceeded.
        """
        touched, size = self._table.touched, len(self._table)
        if touched.position != self._position:
            changed = touched.since(self._position, max(64, size // 64)) if self._position >= 0 else None
            self._cells = grown(self._cells, size)
            self._note(self._table.placed if changed is None else self._pools_of(changed[0].tolist()))
            self._position = touched.position
        while self._pending:
            self._check()
            placed = next(iter(self._pending))
            self._evaluate(placed)
            del self._pending[placed]
        return self._cells[:size]

    def _note(self, changed: Iterable[PlacedPool]) -> None:
        if self._pending:  # some of them may be gone by now
            there = dict.fromkeys(self._table.placed)
            self._pending = {placed: None for placed in self._pending if placed in there}
        self._pending.update(dict.fromkeys(changed))

    def _pools_of(self, nodes: list[int]) -> Iterable[PlacedPool]:
        return dict.fromkeys(placed for node in nodes for placed in self._table.pools_of(node))

    def _evaluate(self, placed: PlacedPool) -> None:
        if not placed.pool.counters or placed.pool.condition is not PoolCondition.USABLE:
            return
        rows = placed.rows[self._table.traits[placed.rows] & CONSUMES > 0]
        left = self._standing.left(placed)
        key = self._properties.consumption.codes[rows].tobytes(), tuple(left.items())
        found = self._known.get(key)
        if found is None:
            found = self._known.put(key, self._suffice(rows, left))
        self._cells[rows] = found

    def _suffice(self, rows: RowNumbers, left: Left) -> Verdicts:
        """For each of these devices of a pool: a pool of which too much is consumed gives none of them."""
        if min(left.values(), default=0) < 0:
            return np.full(len(rows), LACKS, dtype=np.int8)
        consumed = [consumption(self._table.devices[row]) for row in rows.tolist()]
        if any(amount < 0 for each in consumed for amount in each.values()):
            return np.full(len(rows), DEPENDS, dtype=np.int8)
        return np.array([all(amount <= left[name] for name, amount in each.items()) for each in consumed], np.int8)
