"""Finds the cheapest moves after which a waiting group fits.

For all domains at once, the module estimates the cost of freeing enough nodes. It then tries the cheapest domains on
the real columns: it moves the pods in a transaction and places the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gangline import ANYWHERE, BoolColumn, Domains, GroupAttempt, Handle, PodInfo, Rows, Transaction
from gangline_plugins.defragmentation.movable import Movable, each_once
from gangline_plugins.defragmentation.moving import Moved, Mover, mask_of
from gangline_plugins.gang_preemption.demand import GangDemand
from gangline_plugins.gang_preemption.occupants import Removal
from gangline_plugins.gang_preemption.room import Room
from gangline_plugins.gang_preemption.searching import find_victims

MOST_DOMAINS = 8
"""At most this many domains are tried for one group."""
_MOST_SEARCHES = 16
"""At most this many searches in one domain; a new search follows when a moved pod finds no other node."""
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Moves in order, and the nodes that the group gets then: pod UID to row."""

    moved: Sequence[Moved]
    cost: float
    placed: Mapping[str, int]


@dataclass(slots=True, eq=False)
class _DomainSearch:
    """The search in one domain; `level` is None for the whole cluster."""

    level: Domains | None
    rows: Rows
    order: list[Removal] | None = None
    """All units that may make room, in the order in which they are moved."""
    units: list[Removal] = field(default_factory=list)
    """The units that are chosen to be moved."""
    cost: float = 0.0
    barred: set[Removal] = field(default_factory=set)
    """The units for which no other place was found."""


class GroupPlanning:
    """Plans for one attempt; `tried` holds the rows of the domains that were examined."""

    def __init__(self, handle: Handle, attempt: GroupAttempt, movable: Movable) -> None:
        self._handle = handle
        self._attempt = attempt
        self._movable = movable
        self._demand = GangDemand(handle, attempt, movable.occupants)
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
        """The cheapest draft that is found; None if there is none. The transaction is left unchanged."""
        searches = [_DomainSearch(level, self._rows(level, domain)) for level, domain in self._candidates()]
        self.tried = [search.rows for search in searches]
        searches = [search for search in searches if self._choose(search)]
        best: Draft | None = None
        for search in sorted(searches, key=lambda search: search.cost):
            if best is not None and search.cost >= best.cost:
                break
            mark = transaction.mark()
            found = self._try(search, transaction)
            transaction.undo_to(mark)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def _rows(self, level: Domains | None, domain: int) -> Rows:
        return np.flatnonzero(self._handle.nodes.alive) if level is None else level.rows(domain)

    # Candidates

    def _candidates(self) -> list[tuple[Domains | None, int]]:
        """The domains in which the group could fit, those with the lowest estimated cost first."""
        found: list[tuple[Domains | None, int, float]] = []
        for level in self._levels():
            ids = np.zeros(self._size, dtype=np.int64) if level is None else level.ids.astype(np.int64)
            number = 1 if level is None else len(level)
            held = np.array([_sums(ids, column, number) for column in self._then])
            met = self._demand.is_met(held)
            estimates = self._estimates(ids, number)
            found += [(level, domain, float(estimates[domain])) for domain in np.flatnonzero(met).tolist()]
        found.sort(key=lambda each: each[2])
        return [(level, domain) for level, domain, _ in found[:MOST_DOMAINS]]

    def _levels(self) -> list[Domains | None]:
        """The level that the group requires; otherwise the whole cluster and the domains of all switch levels."""
        topology, constraint = self._handle.topology, self._attempt.group.topology
        required = constraint.required_at(self._attempt.waited)
        if required == ANYWHERE:
            return [None, *topology.switches()]
        level = topology.find(required)
        return [] if level is None else [level]

    def _estimates(self, ids: NDArray[np.int64], number: int) -> Values:
        """For each domain the cost of freeing the cheapest nodes that are enough."""
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
        return np.bincount(of, weights=costs * needed, minlength=number).astype(np.float64)

    def _rates(self, ids: NDArray[np.int64]) -> tuple[Values, Values]:
        """For each row the cost of freeing it, and that cost divided by the members that the row holds then.

        The cost of moving a group is divided among its pods in one domain, because all its other pods move with them.
        """
        occupants, movable = self._movable.occupants, self._movable
        totals = np.bincount(occupants.owners, weights=movable.costs, minlength=len(occupants.all))
        pairs = occupants.owners.astype(np.int64) * (int(ids.max(initial=0)) + 2) + ids[occupants.rows] + 1
        _, inverse, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        shares = totals[occupants.owners] / counts[inverse] if len(pairs) else totals[occupants.owners]
        offered = self._offered
        summed = np.bincount(occupants.rows[offered], weights=shares[offered], minlength=self._size)
        costs = summed.astype(np.float64)
        return costs, costs / np.maximum(self._gain, 1e-9)

    # Trying

    def _choose(self, search: _DomainSearch) -> bool:
        """Choose by arithmetic the units to move; False if moving all movable units is not enough."""
        occupants = self._movable.occupants
        if search.order is None:
            search.order = self._in_order(search)
        left = [unit for unit in search.order if unit not in search.barred]
        victims = find_victims(Room(self._demand, occupants, search.rows), left)
        if victims is None:
            return False
        search.units = list(each_once(victims))
        search.cost = sum(self._movable.cost(self._movable.mates(unit)) for unit in search.units)
        return True

    def _in_order(self, search: _DomainSearch) -> list[Removal]:
        """The units in order: the nodes that are cheapest to free come first, each with all its units."""
        occupants, level = self._movable.occupants, search.level
        ids = np.zeros(self._size, dtype=np.int64) if level is None else level.ids.astype(np.int64)
        _, rates = self._rates(ids)
        inside = mask_of(search.rows, self._size)[occupants.rows]
        units = occupants.units(inside, inside & (self._gain[occupants.rows] > 0))
        return sorted(units, key=lambda unit: _place_in_line(unit, occupants.rows, rates))

    def _try(self, search: _DomainSearch, transaction: Transaction) -> Draft | None:
        """Move the chosen units; if a unit finds no other place, choose others and try again."""
        for _ in range(_MOST_SEARCHES):
            mark = transaction.mark()
            found = self._carry_out(search, transaction)
            if not isinstance(found, Removal):
                return found
            transaction.undo_to(mark)
            search.barred.add(found)
            if not self._choose(search):
                return None
        return None

    def _carry_out(self, search: _DomainSearch, transaction: Transaction) -> Draft | Removal | None:
        """Move all units. Returns the unit that finds no other place, or None if the group does not fit even then."""
        units = search.units
        within = mask_of(search.rows, self._size)
        forbidden = within if search.level is not None else self._wanted(units, transaction)
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
        return Draft(moved, search.cost, placed)

    def _wanted(self, units: Sequence[Removal], transaction: Transaction) -> BoolColumn | None:
        """The rows that the group would take if all units were gone."""
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


def _place_in_line(unit: Removal, rows: Rows, rates: Values) -> tuple[float, int]:
    """The sort key of a unit: the cheapest rate among its nodes, then the row of that node."""
    own = rows[unit.slots]
    first = int(own[np.argmin(rates[own])])
    return float(rates[first]), first
