"""Which nodes may use the devices that claims may get. Claims that pods on several nodes share need to know.

A device of one node reaches that node. Another device reaches the nodes that its slice names or, if devices of the
slice select nodes one by one, the nodes that the device names. All answers are about the table as it is now.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from gangline.dra.candidates import USABLE, Candidates
from gangline.dra.pools import Reach
from gangline.dra.rows import RowNumbers
from gangline.dra.table import SEVERAL
from gangline.status import BoolColumn

_MOST_SLICES = 1024
"""Slices, at most, whose devices several nodes may use and for which the nodes are read."""
_MOST_DEVICES = 4096
"""Devices, at most, that select nodes themselves and for which the nodes are read."""


class Reaching:
    """Tells which nodes may use the candidates for the claims of one pod."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._table = candidates.table
        self._masks: dict[int, BoolColumn] = {}
        """By number of a slice: the nodes that see the slice, as the table was at `_position`."""
        self._position = -1, 0

    def sets(self, size: int) -> list[BoolColumn]:
        """For each free device that several nodes may use: these nodes, as a column over the first `size` nodes.

        The columns are in the order of the devices, each once. For devices of one node see `alone`.
        """
        table = self._table
        rows = np.flatnonzero(self._free() & (table.node == SEVERAL))
        numbers = {table.slice_of[row] for row in rows.tolist()}
        in_order = sorted(numbers, key=self._order)[:_MOST_SLICES]
        found: dict[bytes, BoolColumn] = {}
        left = _MOST_DEVICES
        for number in in_order:
            self._candidates.check()
            seen = self._seen(number, size)
            if not table.slices[number].spec.per_device_node_selection:
                found.setdefault(seen.tobytes(), seen)
                continue
            of_slice = table.rows_of_slice(number)
            for row in rows[(rows >= of_slice.start) & (rows < of_slice.stop)][: max(0, left)].tolist():
                left -= 1
                self._candidates.check()
                mask = seen & table.reach_of(row).mask(size)
                found.setdefault(mask.tobytes(), mask)
        return list(found.values())

    def alone(self, size: int) -> BoolColumn:
        """Which of the first `size` nodes have a free device that no other node may use."""
        node = self._table.node[self._free()]
        found: BoolColumn = np.zeros(size, dtype=np.bool_)
        found[node[(node >= 0) & (node < size)]] = True
        return found

    def reaches_all(self, rows: RowNumbers, nodes: NDArray[np.intp]) -> BoolColumn:
        """For each of these rows of the table: whether all of these nodes may use the device."""
        table, wanted = self._table, frozenset(nodes.tolist())
        found: BoolColumn = np.isin(table.node[rows], nodes) & (len(nodes) == 1)
        known: dict[int, bool] = {}
        for at in np.flatnonzero(table.node[rows] == SEVERAL).tolist():
            row = int(rows[at])
            number = table.slice_of[row]
            if number not in known:
                known[number] = not reduce(lambda left, reach: reach.without(left), self._seen_by(number), wanted)
            selects = table.slices[number].spec.per_device_node_selection
            found[at] = known[number] and not (selects and table.reach_of(row).without(wanted))
        return found

    def _free(self) -> BoolColumn:
        """By row of the table: whether some request may be given the device now."""
        candidates = self._candidates
        usable: BoolColumn = np.zeros(len(candidates.table), dtype=np.bool_)
        for number in range(len(candidates.alternatives)):
            usable |= candidates.flags(number) & USABLE > 0
        return usable & ~candidates.standing.is_taken(slice(0, len(candidates.table)))

    def _order(self, number: int) -> tuple[bool, str, str, str]:
        placed = self._table.placed_with[number]
        return *min(each.pool.order for each in placed), self._table.slices[number].metadata.name

    def _seen(self, number: int, size: int) -> BoolColumn:
        """Which of the first `size` nodes see the slice with this number as a slice with devices for them."""
        position = self._table.moved.position, size
        if position != self._position:
            self._masks, self._position = {}, position
        if number not in self._masks:
            self._masks[number] = np.logical_or.reduce([each.mask(size) for each in self._seen_by(number)])
        return self._masks[number]

    def _seen_by(self, number: int) -> list[Reach]:
        placed = self._table.placed_with[number]
        return [each.pool.reach for each in placed if number in each.pool.slices]
