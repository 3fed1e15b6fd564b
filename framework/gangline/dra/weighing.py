"""What is lost on each node if it serves a question, for many nodes at once: an estimate from the losses of devices.

Each request takes the devices with the least loss that are usable, as if each were given alone. Devices that several
nodes may use are left out. Of a request with alternatives the first one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from gangline.dra.candidates import USABLE, Candidates
from gangline.dra.losses import Losses
from gangline.dra.rows import RowNumbers
from gangline.dra.sharing import Values

Chosen = Collection[tuple[int, str]]
"""Claims, by number, and names of the alternatives that are chosen."""


class Weighing:
    """Weighs nodes for one ask."""

    def __init__(self, candidates: Candidates, losses: Losses) -> None:
        self._candidates = candidates
        self._table = candidates.table
        self._losses = losses

    def weigh(self, size: int, nodes: NDArray[np.int64] | None = None, chosen: Chosen = ()) -> Values:
        """The losses on the nodes in these rows; on the first `size` rows without."""
        losses, needs = self._losses.values, self._needs(chosen)
        if nodes is None:
            return self._weighed(needs, losses, slice(0, len(self._table)), self._table.node, size)
        rows = self._table.rows_on(nodes.tolist())
        where = np.zeros(size, dtype=np.int64)
        where[nodes] = np.arange(len(nodes))
        return self._weighed(needs, losses[rows], rows, where[self._table.node[rows]], len(nodes))

    def _needs(self, chosen: Chosen) -> Iterator[tuple[int, int | None]]:
        """One alternative of each kind, and how many devices the kind needs; None for all."""
        candidates, number = self._candidates, 0
        needs: dict[int, int | None] = {}
        for request in [request for requests in candidates.ask.requests for request in requests]:
            names = [each.name for each in request.alternatives]
            place = next((at for at, name in enumerate(names) if (request.alternatives[0].claim, name) in chosen), 0)
            alternative, kind = request.alternatives[place], candidates.kind_of[number + place]
            number += len(names)
            if not alternative.is_admin:
                before = needs.get(kind, 0)
                needs[kind] = None if alternative.is_all or before is None else before + alternative.count
        return ((candidates.kind_of.index(kind), need) for kind, need in needs.items())

    def _weighed(
        self,
        needs: Iterable[tuple[int, int | None]],
        losses: Values,
        rows: RowNumbers | slice,
        place: RowNumbers,
        size: int,
    ) -> Values:
        found = np.zeros(size)
        for number, need in needs:
            flags = self._candidates.flags(number)[rows]
            usable = np.flatnonzero((flags & USABLE > 0) & (place >= 0) & np.isfinite(losses))
            found += _least(place[usable], losses[usable], need, size)
        return found


def _least(place: RowNumbers, losses: Values, need: int | None, size: int) -> Values:
    """For each place the sum of its least losses, so many of them or all."""
    if need == 1:
        found = np.full(size, np.inf)
        np.minimum.at(found, place, losses)
        return np.where(np.isfinite(found), found, 0.0)
    order = np.lexsort((losses, place))
    place, losses = place[order], losses[order]
    rank = np.arange(len(place)) - np.searchsorted(place, place)
    taken = rank < (len(place) if need is None else need)
    return np.bincount(place[taken], weights=losses[taken], minlength=size).astype(np.float64)
