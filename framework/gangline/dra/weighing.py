"""The loss on each node if the node gives its devices to the claims of a question, for many nodes at once: an estimate.

Each kind of request takes the usable devices with the least losses, and the losses are added as if each device were
given alone. Devices that several nodes may use are left out. Of a request with alternatives the first one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from gangline.dra.candidates import USABLE, Candidates
from gangline.dra.locating import located
from gangline.dra.losses import Losses
from gangline.dra.matrices import Matrix, OwnDevices, picked
from gangline.dra.rows import RowNumbers
from gangline.dra.sharing import Values

Chosen = frozenset[tuple[int, str]]
"""Claims, by number, and names of the alternatives that are chosen."""

_FEW = 4
"""So many of the least cells of columns, or fewer, are found faster than by sorting the columns."""


class Weighing:
    """Weighs nodes for the claims of one pod."""

    def __init__(self, candidates: Candidates, losses: Losses, own_devices: OwnDevices) -> None:
        self._candidates = candidates
        self._table = candidates.table
        self._losses = losses
        self._own_devices = own_devices

    def weigh(self, size: int, nodes: NDArray[np.int64] | None = None, chosen: Chosen = frozenset()) -> Values:
        """The losses on the nodes in these rows; on the first `size` rows without."""
        needs = self._needs(chosen)
        rows, place = located(self._table, size, nodes)
        if isinstance(rows, slice) and (matrix := self._own_devices.rows(size)) is not None:
            losses, of = self._losses.matrix(matrix), slice(None) if nodes is None else nodes
            return self._weighed_in(matrix[:, of], needs, losses[:, of])
        return self._weighed(needs, self._losses.values[rows], rows, place, size if nodes is None else len(nodes))

    def _weighed_in(self, matrix: Matrix, needs: Iterable[tuple[int, int | None]], losses: Values) -> Values:
        """The losses on the nodes of a matrix of all their devices, given the losses of the devices."""
        found = np.zeros(matrix.shape[1])
        for number, need in needs:
            is_usable = picked(self._candidates.flags(number) & USABLE > 0, matrix, False)
            least = _least_rows(losses if is_usable.all() else np.where(is_usable, losses, np.inf), need)
            found += np.where(np.isfinite(least), least, 0.0).sum(axis=0)
        return found

    def _needs(self, chosen: Chosen) -> Iterator[tuple[int, int | None]]:
        """By kind of alternatives: the number of one of them, and how many devices the kind needs; None for all."""
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


def _least_rows(matrix: Matrix, need: int | None) -> Matrix:
    """The least cells of each column, ascending: `need` of them, or all if that is None or there are no more."""
    if need is None or need > _FEW:
        return np.sort(matrix, axis=0)[:need]
    if need == 1:
        return matrix.min(axis=0, keepdims=True)
    least = np.full((min(need, len(matrix)), matrix.shape[1]), np.inf)
    for row in matrix:
        for at in range(len(least)):
            row, least[at] = np.maximum(row, least[at]), np.minimum(row, least[at])
    return least


def _least(place: RowNumbers, losses: Values, need: int | None, size: int) -> Values:
    """For each place the sum of its `need` least losses, or of all its losses if `need` is None; a place is a node."""
    if need == 1:
        found = np.full(size, np.inf)
        np.minimum.at(found, place, losses)
        return np.where(np.isfinite(found), found, 0.0)
    order = np.lexsort((losses, place))
    place, losses = place[order], losses[order]
    rank = np.arange(len(place)) - np.searchsorted(place, place)
    taken = rank < (len(place) if need is None else need)
    return np.bincount(place[taken], weights=losses[taken], minlength=size).astype(np.float64)
