"""Finds the cheapest moves after which a given number of domains have all their GPUs free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, Domains, Handle, PodInfo, Rows, Transaction
from gangline_plugins.anti_fragmentation.capacity import all_devices, free_devices
from gangline_plugins.defragmentation.movable import Movable
from gangline_plugins.defragmentation.moving import Moved, Mover
from gangline_plugins.gpu.devices import device_table

MOST_TRIED = 16
"""At most this many domains are tried in addition to the number wanted."""


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """Which domains of a level are complete, and how many GPUs each one has."""

    complete: BoolColumn
    """Domains of which every GPU is free."""
    gpus: NDArray[np.int64]
    """The number of GPUs of each domain."""


def use_of(level: Domains, handle: Handle) -> Use:
    """The use of a level's domains by the present columns."""
    nodes, columns = handle.nodes, device_table(handle.state).columns
    total = np.where(nodes.alive, all_devices(nodes, columns), 0)
    free = np.where(nodes.alive, free_devices(nodes, columns).sum(axis=1), 0)
    gpus, left = level.sums(total), level.sums(free)
    return Use((gpus > 0) & (left >= gpus), gpus // 1000)


@dataclass(frozen=True, slots=True, eq=False)
class DomainsDraft:
    """Moves in order, and the domains that they free."""

    moved: Sequence[Moved]
    domains: Sequence[int]


class DomainPlanning:
    """Plans for one level; `tried` collects the rows of the domains that were examined."""

    def __init__(self, handle: Handle, level: Domains, movable: Movable) -> None:
        self._handle = handle
        self._level = level
        self._movable = movable
        self._use = use_of(level, handle)
        self.tried: list[Rows] = []

    def cheapest(self, wanted: int, transaction: Transaction) -> DomainsDraft | None:
        """Moves that free so many more domains, the cheapest first; None if there are none. The transaction is left
        unchanged.
        """
        before = transaction.mark()
        freed: list[int] = []
        moved: list[Moved] = []
        candidates = self._candidates()
        closed = self._use.complete.copy()
        closed[candidates[:wanted]] = True
        for domain in candidates[: wanted + MOST_TRIED]:
            if len(freed) == wanted:
                break
            if self._has_taken_in(domain, moved):
                continue
            closed[domain] = True
            rows = self._level.rows(domain)
            self.tried.append(rows)
            mark = transaction.mark()
            found = self._free(rows, closed, transaction)
            if found is None:
                closed[domain] = False
                transaction.undo_to(mark)
                continue
            freed.append(domain)
            moved += found
        transaction.undo_to(before)
        return DomainsDraft(moved, freed) if len(freed) == wanted else None

    def _has_taken_in(self, domain: int, moved: Sequence[Moved]) -> bool:
        """Whether pods were moved to the domain earlier, when it was not to be freed."""
        return any(domain in self._level.ids[list(each.destinations)] for each in moved)

    def _candidates(self) -> list[int]:
        """The domains whose GPUs only movable pods use, the cheapest first."""
        occupants, movable = self._movable.occupants, self._movable
        domains = self._level.ids[occupants.rows]
        totals = np.bincount(occupants.owners, weights=movable.costs, minlength=len(occupants.all))
        counted = (domains >= 0) & (movable.gpus > 0)
        pairs = np.unique(np.stack([occupants.owners[counted], domains[counted]]), axis=1)
        costs = np.bincount(pairs[1], weights=totals[pairs[0]], minlength=len(self._level))
        stuck = np.zeros(len(self._level), dtype=np.bool_)
        stuck[domains[counted & ~occupants.offered()]] = True
        open_ = np.flatnonzero((self._use.gpus > 0) & ~self._use.complete & ~stuck)
        return [int(domain) for domain in open_[np.lexsort((open_, costs[open_]))]]

    def _free(self, rows: Rows, closed: BoolColumn, transaction: Transaction) -> list[Moved] | None:
        """Move all pods with GPUs off these rows, to domains that are not closed. None if a pod finds no place."""
        mover = Mover(self._handle, transaction, np.append(closed, False)[self._level.ids])
        moved: list[Moved] = []
        while pods := self._next(rows):
            each = mover.move(pods)
            if each is None:
                return None
            moved.append(each)
        return moved

    def _next(self, rows: Rows) -> Sequence[PodInfo]:
        """Pods that belong together, one of which has GPUs on these rows; empty if all such pods are gone."""
        occupants = self._movable.occupants
        here = np.isin(occupants.rows, rows) & (self._movable.gpus > 0)
        for slot in np.flatnonzero(here).tolist():
            pod = occupants.pods[slot]
            if pod.row < 0:
                continue
            occupant = occupants.all[int(occupants.owners[slot])]
            return [pod] if occupant.spare and pod.uid not in occupant.spared else occupant.pods
        return ()
