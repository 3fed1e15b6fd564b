"""Which nodes have devices for a pod, for many nodes at once, as far as counting is exact.

Counting is exact where all candidates are ordinary devices of one node (no shares, no counters), each request names one
thing in a number, and the candidates of two requests are either the same or disjoint. One constraint that wants equal
values is counted per value. Other nodes are left to the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.asking import MOST_DEVICES
from gangline.dra.candidates import FAILS, USABLE, Candidates
from gangline.dra.rows import RowNumbers, kinds
from gangline.dra.table import CONSUMES, SHAREABLE
from gangline.status import BoolColumn

Outcomes = NDArray[np.int8]
"""One outcome for each node."""
NONE = 0
"""The node does not have the devices."""
FITS = 1
"""The node has the devices."""
OPEN = 2
"""Only a search can tell."""
_ENDLESS = 1 << 31
"""The room where nothing is asked for."""


class Counted(NamedTuple):
    """What counting says of some nodes."""

    outcomes: Outcomes
    room: NDArray[np.int64]
    """How many times each node has the devices; for a node that is OPEN it means nothing."""


def is_countable(candidates: Candidates) -> bool:
    """Whether counting may say anything."""
    alternatives = candidates.alternatives
    if any(request.is_prioritized for requests in candidates.ask.requests for request in requests):
        return False
    if any(each.is_all or each.is_admin for each in alternatives):
        return False
    per_claim = np.bincount([each.claim for each in alternatives], weights=[each.count for each in alternatives])
    if per_claim.max(initial=0) > MOST_DEVICES:
        return False
    constraints = [each for rules in candidates.ask.constraints for each in rules]
    if len(constraints) > 1 or any(each.is_distinct or each.requests for each in constraints):
        return False
    return not constraints or len(candidates.ask.claims) == 1


def count(candidates: Candidates, size: int, nodes: NDArray[np.int64] | None = None) -> Counted:
    """The outcomes of the nodes in these rows; of the first `size` rows without."""
    number = size if nodes is None else len(nodes)
    if not candidates.alternatives:
        return Counted(np.full(number, FITS, dtype=np.int8), np.full(number, _ENDLESS))
    if not is_countable(candidates):
        return Counted(np.full(number, OPEN, dtype=np.int8), np.zeros(number, dtype=np.int64))
    return _Counting(candidates, size, nodes).counted()


class _Counting:
    """Counts over all rows of the table, or over those of some nodes.

    A cell is what has to be counted together: the devices of a node, with one value if there is a constraint.
    """

    def __init__(self, candidates: Candidates, size: int, nodes: NDArray[np.int64] | None) -> None:
        self._candidates = candidates
        self._table = candidates.table
        self._nodes = nodes
        self._size = size
        self._rows: RowNumbers | slice = slice(0, len(self._table))
        place = self._table.node
        if nodes is not None:
            self._rows = self._table.rows_on(nodes.tolist())
            where = np.full(size, -1, dtype=np.int64)
            where[nodes] = np.arange(len(nodes))
            place = where[self._table.node[self._rows]]
            self._size = len(nodes)
        self._place = place
        """By row: the position of its node; negative where several nodes may use the device."""
        self._free = (place >= 0) & ~candidates.standing.is_taken(self._rows)
        self._special = self._table.traits[self._rows] & (SHAREABLE | CONSUMES) > 0
        constraints = [each for rules in candidates.ask.constraints for each in rules]
        self._values: NDArray[np.int32] | None = None
        if constraints:
            self._values = candidates.properties.attribute(constraints[0].attribute).values[self._rows]

    def counted(self) -> Counted:
        unsure = self._wide()
        needs: dict[bytes, int] = {}
        groups: dict[bytes, BoolColumn] = {}
        for number, alternative in enumerate(self._candidates.alternatives):
            flags = self._candidates.flags(number)[self._rows]
            special = self._free & (flags & FAILS > 0)
            mask = self._free & (flags & USABLE > 0)
            special |= mask & self._special
            if self._values is not None:
                special |= mask & (self._values < -1)
                mask &= self._values >= 0
            if special.any():
                unsure[self._place[special]] = True
            key = mask.tobytes()
            if key not in groups:
                for other in groups.values():
                    unsure[self._place[mask & other]] = True
                groups[key] = mask
            needs[key] = needs.get(key, 0) + alternative.count
        room = self._room([(mask, needs[key]) for key, mask in groups.items()])
        return Counted(np.where(unsure, OPEN, room > 0).astype(np.int8), room)

    def _room(self, groups: list[tuple[BoolColumn, int]]) -> NDArray[np.int64]:
        """By node: how many times each group has the number of devices that it needs, all in one cell."""
        cells, node_of = self._place, None
        number = self._size
        groups = [(mask, need) for mask, need in groups if need]
        if not groups:
            return np.full(self._size, _ENDLESS)
        if self._values is not None:
            local = np.flatnonzero((self._place >= 0) & (self._values >= 0))
            if not len(local):
                return np.zeros(self._size, dtype=np.int64)
            numbers, first = kinds([self._place[local], self._values[local]])
            cells = np.full(len(self._place), -1, dtype=np.int64)
            cells[local] = numbers
            number, node_of = len(first), self._place[local[first]]
        room = np.full(number, _ENDLESS)
        for mask, need in groups:
            np.minimum(room, np.bincount(cells[mask], minlength=number) // need, out=room)
        if node_of is None:
            return room
        return np.bincount(node_of, weights=room, minlength=self._size).astype(np.int64)

    def _wide(self) -> BoolColumn:
        """Nodes that may use devices which other nodes may use too, and which matter here."""
        unsure = np.zeros(self._size, dtype=np.bool_)
        nodes = self._nodes
        for placed in self._table.wide_pools if nodes is None else self._table.wide_pools_of(nodes.tolist()):
            rows = placed.rows[self._table.node[placed.rows] < 0]
            free = ~self._candidates.standing.is_taken(rows)
            if any(
                (free & (self._candidates.flags(number)[rows] & (USABLE | FAILS) > 0)).any()
                for number in range(len(self._candidates.alternatives))
            ):
                reach = placed.pool.reach
                unsure |= (
                    reach.mask(self._size) if nodes is None else np.array([node in reach for node in nodes.tolist()])
                )
        return unsure
