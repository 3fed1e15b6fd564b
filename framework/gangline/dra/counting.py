"""Which nodes have devices for a pod, for many nodes at once, as far as counting is exact.

Counting is exact where all candidates are ordinary devices of one node (no shares, no counters), each request names one
thing in a number, and the candidates of two requests are either the same or disjoint. One constraint that wants equal
values is counted per value. Other nodes are left to the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.asking import MOST_DEVICES, Ask
from gangline.dra.candidates import FAILS, USABLE, Candidates
from gangline.dra.properties import MISSING, Codes
from gangline.dra.reading import CONSUMES, SHAREABLE
from gangline.dra.rows import RowNumbers, kinds
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


class Counting:
    """Counts nodes for one ask.

    A cell is what has to be counted together: the devices of a node, with one value if there is a constraint.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._table = candidates.table
        self._can = _is_countable(candidates.ask)
        needs: dict[int, int] = {}
        for number, alternative in enumerate(candidates.alternatives):
            kind = candidates.kind_of[number]
            needs[kind] = needs.get(kind, 0) + alternative.count
        self._needs = [(candidates.kind_of.index(kind), need) for kind, need in needs.items()]
        """One alternative of each kind, and how many devices the kind needs."""
        constraints = [each for rules in candidates.ask.constraints for each in rules]
        self._attribute = candidates.properties.attribute(constraints[0].attribute) if constraints else None

    def count(self, size: int, nodes: NDArray[np.int64] | None = None, is_bare: bool = False) -> Counted:
        """The outcomes of the nodes in these rows; of the first `size` rows without.

        With `is_bare`, as if no claim had any device.
        """
        number = size if nodes is None else len(nodes)
        if not self._needs:
            return Counted(np.full(number, FITS, dtype=np.int8), np.full(number, _ENDLESS))
        if not self._can:
            return Counted(np.full(number, OPEN, dtype=np.int8), np.zeros(number, dtype=np.int64))
        if nodes is None:
            return self._counted(slice(0, len(self._table)), self._table.node, size, None, is_bare)
        rows = self._table.rows_on(nodes.tolist())
        if number == 1:
            place = np.zeros(len(rows), dtype=np.int64)
        else:
            where = np.zeros(size, dtype=np.int64)
            where[nodes] = np.arange(number)
            place = where[self._table.node[rows]]
        return self._counted(rows, place, number, nodes.tolist(), is_bare)

    def _counted(
        self, rows: RowNumbers | slice, place: RowNumbers, size: int, nodes: list[int] | None, is_bare: bool
    ) -> Counted:
        """`place` has for each row the position of its node; negative where other nodes may use the device too."""
        unsure = self._unsure(size, nodes, is_bare)
        free = self._free(rows, is_bare)
        if isinstance(rows, slice):
            free &= place >= 0
        is_special = self._table.traits[rows] & (SHAREABLE | CONSUMES) > 0
        values = None if self._attribute is None else self._attribute.values[rows]
        groups: dict[bytes, tuple[BoolColumn, int]] = {}
        for number, need in self._needs:
            flags = self._candidates.flags(number)[rows]
            usable = free & (flags & USABLE > 0)
            special = (usable & is_special) | (free & (flags & FAILS > 0))
            if values is not None:
                special |= usable & (values < MISSING)
                usable &= values >= 0
            if special.any():
                unsure[place[special]] = True
            key = usable.tobytes() if len(self._needs) > 1 else b""
            if key in groups:
                need += groups[key][1]
            else:
                for other, _ in groups.values():
                    unsure[place[usable & other]] = True
            groups[key] = usable, need
        room = self._room(list(groups.values()), place, values, size)
        return Counted(np.where(unsure, OPEN, room > 0).astype(np.int8), room)

    def _room(
        self, groups: list[tuple[BoolColumn, int]], place: RowNumbers, values: Codes | None, size: int
    ) -> NDArray[np.int64]:
        """By node: how many times each group has the number of devices that it needs, all in one cell."""
        groups = [(usable, need) for usable, need in groups if need]
        if not groups:
            return np.full(size, _ENDLESS)
        cells, number, node_of = place, size, None
        if values is not None:
            local = np.flatnonzero((place >= 0) & (values >= 0))
            if not len(local):
                return np.zeros(size, dtype=np.int64)
            numbers, first = kinds([place[local], values[local]])
            cells = np.full(len(place), -1, dtype=np.int64)
            cells[local] = numbers
            number, node_of = len(first), place[local[first]]
        room = np.full(number, _ENDLESS)
        for usable, need in groups:
            np.minimum(room, np.bincount(cells[usable], minlength=number) // need, out=room)
        if node_of is None:
            return room
        return np.bincount(node_of, weights=room, minlength=size).astype(np.int64)

    def _free(self, rows: RowNumbers | slice, is_bare: bool) -> BoolColumn:
        """For each of some rows: whether no claim has the device for itself."""
        taken = self._candidates.standing.is_taken(rows)
        return np.ones(len(taken), dtype=np.bool_) if is_bare else ~taken

    def _unsure(self, size: int, nodes: list[int] | None, is_bare: bool) -> BoolColumn:
        """Nodes that may use devices which other nodes may use too, and which matter here."""
        unsure = np.zeros(size, dtype=np.bool_)
        for placed in self._table.wide_pools if nodes is None else self._table.wide_pools_of(nodes):
            rows = placed.rows[self._table.node[placed.rows] < 0]
            free = self._free(rows, is_bare)
            if any(
                (free & (self._candidates.flags(number)[rows] & (USABLE | FAILS) > 0)).any()
                for number, _ in self._needs
            ):
                reach = placed.pool.reach
                unsure |= reach.mask(size) if nodes is None else np.array([node in reach for node in nodes])
        return unsure


def _is_countable(ask: Ask) -> bool:
    """Whether counting may say anything."""
    if any(request.is_prioritized for requests in ask.requests for request in requests):
        return False
    per_claim: dict[int, int] = {}
    for each in ask.alternatives:
        if each.is_all or each.is_admin:
            return False
        per_claim[each.claim] = per_claim.get(each.claim, 0) + each.count
    if max(per_claim.values(), default=0) > MOST_DEVICES:
        return False
    constraints = [each for rules in ask.constraints for each in rules]
    if len(constraints) > 1 or any(each.is_distinct or each.requests for each in constraints):
        return False
    return not constraints or len(ask.claims) == 1
