"""Which nodes have devices for a pod, for all nodes at once, as far as counting is exact.

Counting is exact where all candidates are ordinary devices of one node (no shares, no counters), each request names one
thing in a number, and the candidates of two requests are either the same or disjoint. One constraint that wants equal
values is counted per value. Other nodes are left to the search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gangline.dra.asking import MOST_DEVICES
from gangline.dra.candidates import Candidates
from gangline.status import BoolColumn

Outcomes = NDArray[np.int8]
"""One outcome for each node row."""
NONE = 0
"""The node does not have the devices."""
FITS = 1
"""The node has the devices."""
OPEN = 2
"""Only a search can tell."""


def count(candidates: Candidates, size: int) -> Outcomes:
    """The outcome of each of the first `size` node rows."""
    alternatives = candidates.alternatives
    if not alternatives:
        return np.full(size, FITS, dtype=np.int8)
    per_claim = np.bincount([each.claim for each in alternatives], weights=[each.count for each in alternatives])
    if (
        any(request.is_prioritized for requests in candidates.ask.requests for request in requests)
        or any(each.is_all or each.is_admin for each in alternatives)
        or per_claim.max() > MOST_DEVICES
    ):
        return np.full(size, OPEN, dtype=np.int8)
    constraints = [each for rules in candidates.ask.constraints for each in rules]
    if len(constraints) > 1 or any(each.is_distinct or each.requests for each in constraints):
        return np.full(size, OPEN, dtype=np.int8)
    if constraints and len(candidates.ask.claims) > 1:
        return np.full(size, OPEN, dtype=np.int8)
    return _Counting(candidates, size, constraints[0].attribute if constraints else None).outcomes()


class _Counting:
    def __init__(self, candidates: Candidates, size: int, attribute: str | None) -> None:
        self._candidates = candidates
        self._size = size
        table = candidates.table
        self._node = table.node
        self._local = table.node >= 0
        self._values = None if attribute is None else table.attribute(attribute)
        self._width = 1 if self._values is None else int(self._values.max(initial=0)) + 1

    def outcomes(self) -> Outcomes:
        sets = [columns.candidates for columns in self._candidates.columns]
        unsure = self._special(sets)
        needs: dict[bytes, int] = {}
        groups: dict[bytes, BoolColumn] = {}
        for mask, alternative in zip(sets, self._candidates.alternatives, strict=True):
            key = mask.tobytes()
            if key not in groups:
                for other in groups.values():
                    unsure |= self._has(mask & other)
                groups[key] = mask
            needs[key] = needs.get(key, 0) + alternative.count
        fits = np.ones((self._size, self._width), dtype=np.bool_)
        for key, mask in groups.items():
            fits &= self._counted(mask) >= needs[key]
        return np.where(unsure, OPEN, fits.any(axis=1)).astype(np.int8)

    def _has(self, rows: BoolColumn) -> BoolColumn:
        """Which nodes have one of these rows."""
        found = np.zeros(self._size, dtype=np.bool_)
        found[self._node[rows & self._local]] = True
        return found

    def _counted(self, rows: BoolColumn) -> NDArray[np.int64]:
        """How many of these rows each node has, by value if there is a constraint; of shape (nodes, values)."""
        kept = rows & self._local
        if self._values is None:
            return np.bincount(self._node[kept], minlength=self._size)[:, np.newaxis]
        kept &= self._values >= 0
        cells = self._node[kept] * self._width + self._values[kept]
        return np.bincount(cells, minlength=self._size * self._width).reshape(self._size, self._width)

    def _special(self, sets: list[BoolColumn]) -> BoolColumn:
        """Nodes for which counting may be wrong: shares, counters, failing selectors, devices of several nodes."""
        table = self._candidates.table
        unsure = np.zeros(self._size, dtype=np.bool_)
        special = np.zeros(len(table), dtype=np.bool_)
        for mask, columns in zip(sets, self._candidates.columns, strict=True):
            special |= columns.failures | (mask & (table.shareable | table.consumes))
            if self._values is not None:
                special |= mask & (self._values < -1)
        wide = special.copy()
        for mask in sets:
            wide |= mask
        for pool in table.wide_pools:
            if wide[table.rows_of(pool)].any():
                unsure |= pool.reach.mask(self._size)
        return unsure | self._has(special)
