"""The cheapest moves after which a waiting group finds its place.

For all domains at once it is estimated what freeing enough of one costs; the cheapest are tried on the real columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import ANYWHERE, BoolColumn, Domains, GroupAttempt, Handle, PodInfo, Rows, Transaction
from gangline_plugins.defragmentation.movable import Movable, each_once
from gangline_plugins.defragmentation.moving import Moved, Mover, mask_of
from gangline_plugins.gang_preemption.demand import Demand
from gangline_plugins.gang_preemption.occupants import Unit
from gangline_plugins.gang_preemption.room import Room
from gangline_plugins.gang_preemption.searching import find_victims

MOST_DOMAINS = 8
"""Domains that are tried for one group, at most."""
_MOST_SEARCHES = 16
"""Searches in one domain: another one where a pod finds no place."""
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Moves in order, and where the group goes then: pod UID to row."""

    moved: Sequence[Moved]
    cost: float
    placed: Mapping[str, int]


class GroupPlanning:
    """Tries for one attempt; `tried` collects the rows of the domains that were looked into."""

    def __init__(self, handle: Handle, attempt: GroupAttempt, movable: Movable) -> None:
        self._handle = handle
        self._attempt = attempt
        self._movable = movable
        self._demand = Demand(handle, attempt, movable.occupants)
        self._size = self._demand.size
        self.tried: list[Rows] = []
        offered = movable.occupants.offered()
        rows = movable.occupants.rows
        free, touched = self._demand.free.copy(), self._demand.touched.copy()
        for resource, amounts in enumerate(self._demand.amounts[:, offered]):
            free[resource] += np.bincount(rows[offered], weights=amounts, minlength=self._size).astype(np.int64)
        touched[rows[offered]] = True
        self._now = self._demand.holds(self._demand.free, self._demand.touched, slice(None))
        self._then = self._demand.holds(free, touched, slice(None))
        self._gain = np.maximum(self._then - self._now, 0).sum(axis=0)
        self._offered = offered

    def cheapest(self, transaction: Transaction) -> Draft | None:
        """The cheapest of what is found; the transaction is left as it was."""
        best: Draft | None = None
        for level, domain, estimate in self._candidates():
            if best is not None and estimate >= best.cost:
                break
            rows = self._rows(level, domain)
            self.tried.append(rows)
            mark = transaction.mark()
            found = self._search(level, domain, rows, transaction)
            transaction.undo_to(mark)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def _rows(self, level: Domains | None, domain: int) -> Rows:
        return np.flatnonzero(self._handle.nodes.alive) if level is None else level.rows(domain)

    # Candidates

    def _candidates(self) -> list[tuple[Domains | None, int, float]]:
        """Domains in which the group could go, and what that may cost, the cheapest first."""
        found: list[tuple[Domains | None, int, float]] = []
        for level in self._levels():
            ids = np.zeros(self._size, dtype=np.int64) if level is None else level.ids.astype(np.int64)
            number = 1 if level is None else len(level)
            held = np.array([_sums(ids, column, number) for column in self._then])
            met = self._demand.is_met(held)
            estimates = self._estimates(ids, number)
            found += [(level, domain, float(estimates[domain])) for domain in np.flatnonzero(met).tolist()]
        return sorted(found, key=lambda each: each[2])[:MOST_DOMAINS]

    def _levels(self) -> list[Domains | None]:
        """The level that is required; a group that does not care is given whole domains only if that is cheapest."""
        topology, constraint = self._handle.topology, self._attempt.group.topology
        required = constraint.required_at(self._attempt.waited)
        if required == ANYWHERE:
            return [None, *topology.switches()]
        level = topology.find(required)
        return [] if level is None else [level]

    def _estimates(self, ids: NDArray[np.int64], number: int) -> Values:
        """For each domain what it costs to free the cheapest nodes that are enough."""
        now = np.array([_sums(ids, column, number) for column in self._now])
        missing = self._demand.missing(now).astype(np.float64)
        node_costs, rates = self._rates(ids)
        open_ = np.flatnonzero((self._gain > 0) & (ids >= 0))
        order = open_[np.lexsort((rates[open_], ids[open_]))]
        gains, costs, of = self._gain[order].astype(np.float64), node_costs[order], ids[order]
        before = np.cumsum(gains) - gains
        starts = np.searchsorted(of, np.arange(number))
        first = np.append(before, 0.0)[starts]
        needed = before - first[of] < missing[of]
        estimates: Values = np.bincount(of, weights=costs * needed, minlength=number)
        return estimates

    def _rates(self, ids: NDArray[np.int64]) -> tuple[Values, Values]:
        """For each row what it costs to free it, and the same for each member that it holds then.

        What a group costs is spread over those of its pods that are in one domain: the others move along.
        """
        occupants, movable = self._movable.occupants, self._movable
        totals = np.bincount(occupants.owners, weights=movable.costs, minlength=len(occupants.all))
        pairs = occupants.owners.astype(np.int64) * (int(ids.max(initial=0)) + 2) + ids[occupants.rows] + 1
        _, inverse, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        shares = totals[occupants.owners] / counts[inverse] if len(pairs) else totals[occupants.owners]
        costs: Values = np.bincount(occupants.rows[self._offered], weights=shares[self._offered], minlength=self._size)
        return costs, costs / np.maximum(self._gain, 1e-9)

    # Trying

    def _search(self, level: Domains | None, domain: int, rows: Rows, transaction: Transaction) -> Draft | None:
        """Pods that make room in one domain and find a place elsewhere."""
        occupants = self._movable.occupants
        ids = np.zeros(self._size, dtype=np.int64) if level is None else level.ids.astype(np.int64)
        _, rates = self._rates(ids)
        inside = mask_of(rows, self._size)[occupants.rows]
        units = occupants.units(inside, inside & (self._gain[occupants.rows] > 0))
        order = sorted(units, key=lambda unit: _place_in_line(unit, occupants.rows, rates))
        barred: set[Unit] = set()
        for _ in range(_MOST_SEARCHES):
            left = [unit for unit in order if unit not in barred]
            victims = find_victims(Room(self._demand, occupants, rows), left)
            if victims is None:
                return None
            mark = transaction.mark()
            found = self._carry_out(level, rows, list(each_once(victims)), transaction)
            if isinstance(found, Draft) or found is None:
                return found
            barred.add(found)
            transaction.undo_to(mark)
        return None

    def _carry_out(
        self, level: Domains | None, rows: Rows, units: Sequence[Unit], transaction: Transaction
    ) -> Draft | Unit | None:
        """Move all units; the unit for which there is no place, or None where the group does not fit even then."""
        forbidden = mask_of(rows, self._size) if level is not None else self._wanted(units, transaction)
        if forbidden is None:
            return None
        mover = Mover(self._handle, transaction, forbidden)
        moved: list[Moved] = []
        for unit in sorted(units, key=lambda unit: -len(unit.pods)):
            each = mover.move(self._movable.mates(unit))
            if each is None:
                return unit
            moved.append(each)
        placed = self._attempt.refit()
        if placed is None:
            return None
        return Draft(moved, sum(self._movable.cost(each.pods) for each in moved), placed)

    def _wanted(self, units: Sequence[Unit], transaction: Transaction) -> BoolColumn | None:
        """The rows that the group would take once all units are gone."""
        mark = transaction.mark()
        pods: list[PodInfo] = [pod for unit in units for pod in self._movable.mates(unit)]
        for pod in pods:
            transaction.unplace(pod)
        placed = self._attempt.refit()
        transaction.undo_to(mark)
        return None if placed is None else mask_of(np.fromiter(placed.values(), dtype=np.intp), self._size)


def _sums(ids: NDArray[np.int64], column: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    inside = ids >= 0
    return np.bincount(ids[inside], weights=column[inside], minlength=number).astype(np.int64)


def _place_in_line(unit: Unit, rows: Rows, rates: Values) -> tuple[float, int]:
    """Nodes that are cheapest to free come first, with all that is on them."""
    own = rows[unit.slots]
    first = int(own[np.argmin(rates[own])])
    return float(rates[first]), first
