"""The loss of each device: how much less later pods can get if the device is given now; for the order `best`.

The loss is a column over the table, the sum of three parts, of which each is small beside the one before:

1. Partitions: the fraction of the worth of its counter set that is lost with the device (`sharing`).
2. The size of the device, so that the smallest sufficient device is given.
3. For a device that may be shared, its free fraction, so that devices in use are filled first. For another device, the
   free fraction of the devices that are linked with it, so that groups of linked devices stay whole.

A device that cannot be given has an infinite loss. Only the devices of nodes for which something has changed are
evaluated again. The *stakes* of a node (`stakes`) are these numbers in a form that weighs several devices together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import count
from math import log2
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.dra.links import Links, Outline
from gangline.dra.matrices import picked
from gangline.dra.placed import PlacedPool
from gangline.dra.pools import PoolCondition
from gangline.dra.properties import Properties
from gangline.dra.reading import CONSUMES, SHAREABLE, consumption
from gangline.dra.rows import RowNumbers, grown
from gangline.dra.sharing import CounterSharing, Sharings, State, Values
from gangline.dra.stakes import CROWD, SIZE, Stakes
from gangline.dra.standing import IN_USE, TAKEN, Standing
from gangline.model.resource_slices import CounterSet
from gangline.quantity import milli
from gangline.sizes import BoundedCache

_MOST_BYTES = 32 << 20
"""Bytes of the layouts of pools, at most."""
_LAYOUT_BYTES = 4096
_PART_BYTES = 200
_MOST_KINDS = 4096
_MOST_BITS = 73
"""The binary logarithm of the largest amount of a capacity, in thousandths."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class _Set(msgspec.Struct, frozen=True, eq=False):
    """A counter set of a pool."""

    sharing: CounterSharing
    counters: tuple[tuple[str, str], ...]
    """Counter set and name of each counter."""
    places: RowNumbers
    """By part: the position of its device in `rows` of the divided pool."""


_Layout = tuple[_Set, ...]


class _Divided(msgspec.Struct, frozen=True, eq=False):
    """A pool with counters."""

    rows: RowNumbers
    """The rows of all devices of the pool, also of those that only other nodes may use."""
    sets: _Layout


class Losses:
    """The losses of all devices."""

    def __init__(self, standing: Standing, properties: Properties, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises DeadlineExceeded when the time of a question has passed."""
        self._standing = standing
        self._table = standing.table
        self._properties = properties
        self._links = Links(standing, properties)
        self._check = check
        self._divided: WeakKeyDictionary[PlacedPool, _Divided] = WeakKeyDictionary()
        self._lost: WeakKeyDictionary[PlacedPool, tuple[list[State], Values]] = WeakKeyDictionary()
        """By pool: the states of its counter sets, and what is lost in these states with each device."""
        self._sharings = Sharings()
        self._layouts: BoundedCache[tuple[bytes, bytes], _Layout] = BoundedCache(
            _MOST_BYTES, lambda _, sets: _LAYOUT_BYTES + _PART_BYTES * sum(len(each.places) for each in sets)
        )
        self._kinds: dict[Hashable, int] = {}
        """By groups and sizes of an outline: the number that stands for them."""
        self._numbers = count()
        self._position = -1
        self._cells: Values = np.zeros(0)
        self._matrix: tuple[RowNumbers, Values] | None = None
        """The last answer of `matrix`, with the rows for which it was made."""
        self._sizes: Values = np.zeros(0)
        """By code of capacities: the size of a device, 0 to 1."""

    @property
    def values(self) -> Values:
        """By row: the loss of the device. Callers may not write to the column, and may use it until the next change.

        Raises DeadlineExceeded.
        """
        touched, size = self._table.touched, len(self._table)
        if touched.position != self._position:
            changed = touched.since(self._position, max(64, size // 64)) if self._position >= 0 else None
            self._cells = grown(self._cells, size)
            rows = self._evaluate(None if changed is None else changed[0].tolist())
            self._follow(None if changed is None else rows)
            self._position = touched.position
        return self._cells[:size]

    def matrix(self, rows: RowNumbers) -> Values:
        """The losses of a matrix of devices by nodes (`OwnDevices.rows`), as `values`; infinite where there is none."""
        values = self.values
        if self._matrix is None or self._matrix[0] is not rows:
            self._matrix = rows, picked(values, rows, np.inf)
        return self._matrix[1]

    def _follow(self, rows: RowNumbers | None) -> None:
        """The losses in these rows were evaluated again; with None, all."""
        if rows is None or self._matrix is None:
            self._matrix = None
            return
        of, losses = self._matrix
        nodes = np.unique(self._table.node[rows])
        nodes = nodes[(nodes >= 0) & (nodes < of.shape[1])]
        losses[:, nodes] = picked(self._cells, of[:, nodes], np.inf)

    def stakes(self, rows: RowNumbers, pools: Sequence[PlacedPool]) -> Stakes:
        """The stakes of a node: `rows` and `pools` are those of its devices."""
        links, groups = self._links.groups(rows.tolist())
        sets: list[tuple[CounterSharing, State]] = []
        parts: list[tuple[tuple[int, int], ...]] = [()] * len(rows)
        consuming = np.flatnonzero(self._consumes_more(rows))
        where = {(pools[at], int(rows[at])): at for at in consuming.tolist()}
        for placed in dict.fromkeys(pools[at] for at in consuming.tolist()):
            divided = self._of_pool(placed)
            for each in divided.sets:
                number, state = len(sets), self._state(placed, divided, each)
                for part, row in enumerate(divided.rows[each.places].tolist()):
                    at = where.get((placed, row))
                    if at is not None:
                        parts[at] = (*parts[at], (number, part))
                sets.append((each.sharing, state))
        return Stakes(
            tuple(sets),
            tuple(parts),
            tuple(self._size(rows).tolist()),
            tuple(self.rooms(rows).tolist()),
            links,
            groups,
        )

    def outline(self, node: int, rows: RowNumbers) -> Outline | None:
        """The part of `stakes` that does not depend on which devices are taken, for devices that may not be shared and
        consume no counters; None if other nodes may use one of the devices.
        """
        found = self._links.outline(node, rows.tolist())
        if found is None:
            return None
        kind = found.groups, tuple(self._size(rows).tolist())
        if kind not in self._kinds:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            self._kinds[kind] = next(self._numbers)
        return found._replace(groups=self._kinds[kind])  # a number is compared faster

    # Evaluation

    def _evaluate(self, nodes: list[int] | None) -> RowNumbers:
        """Evaluate the devices that these nodes see; with None, all devices. Returns the rows of the devices."""
        table, cells = self._table, self._cells
        if nodes is None:
            pools = [placed for placed in table.placed if placed.pool.condition is PoolCondition.USABLE]
            rows = np.arange(len(table))
        else:
            pools = list(dict.fromkeys([placed for node in nodes for placed in table.pools_of(node)]))
            rows = np.unique(np.concatenate([*[placed.rows for placed in pools], table.rows_on(nodes)]))
        if not len(rows):
            return rows
        crowds = self._crowds(rows, nodes)
        small = SIZE * self._size(rows) + CROWD * (self.rooms(rows) + crowds)
        lost = np.zeros(len(rows))
        for placed in pools:
            if placed.pool.counters and self._consumes_more(placed.rows).any():
                divided = self._of_pool(placed)
                here = np.isin(divided.rows, placed.rows) & (table.node[divided.rows] >= 0)
                lost[np.searchsorted(rows, divided.rows[here])] = self._lost_of(placed, divided)[here]
        lost[~self._consumes_more(rows)] = 0.0
        lost[self._standing.states[rows] & TAKEN > 0] = np.inf
        cells[rows] = small + lost
        return rows

    def _lost_of(self, placed: PlacedPool, divided: _Divided) -> Values:
        """For each device of a pool what is lost of its counter sets; kept while their states stay the same."""
        states = [self._state(placed, divided, each) for each in divided.sets]
        known = self._lost.get(placed)
        if known is not None and known[0] == states:
            return known[1]
        found = np.zeros(len(divided.rows))
        for each, state in zip(divided.sets, states, strict=True):
            self._check()
            found[each.places] += each.sharing.losses(state)
        self._lost[placed] = states, found
        return found

    def _consumes_more(self, rows: RowNumbers) -> NDArray[np.bool_]:
        """For each of these devices whether giving it consumes counters: not if a share of it is in use already."""
        is_counted = self._standing.states[rows] & IN_USE > 0
        found: NDArray[np.bool_] = (self._table.traits[rows] & CONSUMES > 0) & ~is_counted
        return found

    def _crowds(self, rows: RowNumbers, nodes: list[int] | None) -> Values:
        """The fraction of the devices in the groups of each device that are free (`links`); 0 for devices that may be
        shared or consume counters.

        `rows` ascend, and contain all devices that these nodes (with None, all nodes) have for themselves.
        """
        found = np.zeros(len(rows))
        own, crowds = self._links.own_crowds(nodes)
        found[np.searchsorted(rows, own)] = crowds
        found[self._table.traits[rows] & (SHAREABLE | CONSUMES) > 0] = 0.0
        return found

    def _size(self, rows: RowNumbers) -> Values:
        """The sizes of devices, 0 to 1: the mean logarithm of their capacities; 1 for the largest possible amounts."""
        capacities = self._properties.capacities
        codes = capacities.codes[rows]
        if len(capacities.values) > len(self._sizes):
            new = capacities.values[len(self._sizes) :]
            self._sizes = np.concatenate([self._sizes, [_size_of(text) for text in new]])
        return self._sizes[codes]

    def rooms(self, rows: RowNumbers) -> Values:
        """The free fraction of devices that may be shared: of their scarcest capacity; 0 for other devices."""
        found = np.where(self._table.traits[rows] & SHAREABLE > 0, 1.0, 0.0)
        for at in np.flatnonzero(self._standing.states[rows] & IN_USE > 0).tolist():  # the shared devices in use
            row = int(rows[at])
            capacity = self._table.devices[row].capacity
            for name, consumed in self._standing.consumed_before(row).items():
                has = milli(capacity[name].value) if name in capacity else 0
                if has > 0:
                    found[at] = max(0.0, min(found[at], 1.0 - consumed / has))
        return found

    # Counter sets

    def left(self, placed: PlacedPool, node: int) -> Values:
        """For each counter set of the pool that devices of the node consume: the fraction of its counters that is left,
        on average over the counters."""
        left, divided = self._standing.left(placed), self._of_pool(placed)
        is_here = self._table.node[divided.rows] == node
        return np.array(
            [
                each.sharing.fraction([max(0, left.get(counter, 0)) for counter in each.counters])
                for each in divided.sets
                if is_here[each.places].any()
            ]
        )

    def share(self, row: int) -> float:
        """The fraction of its counter sets that a device consumes, on average over their counters; at most 1."""
        placed = self._table.placed_with[self._table.slice_of[row]][0]
        amounts = consumption(self._table.devices[row])
        found = 0.0
        for each in self._of_pool(placed).sets:
            found += each.sharing.fraction([amounts.get(counter, 0) for counter in each.counters])
        return min(1.0, found)

    def _state(self, placed: PlacedPool, divided: _Divided, each: _Set) -> State:
        left = self._standing.left(placed)
        taken = self._standing.states[divided.rows[each.places]] & TAKEN > 0
        mask = int.from_bytes(np.packbits(taken, bitorder="little").tobytes(), "little")
        return mask, tuple([left.get(counter, 0) for counter in each.counters])

    def _of_pool(self, placed: PlacedPool) -> _Divided:
        found = self._divided.get(placed)
        if found is None:
            self._check()
            table, pool = self._table, placed.pool
            ranges = [
                np.arange(each.start, each.stop) for each in map(table.rows_of_slice, (*pool.slices, *pool.others))
            ]
            rows = np.unique(np.concatenate(ranges)) if ranges else np.arange(0)
            sets = [each for number in pool.counters for each in table.slices[number].spec.shared_counters]
            key = self._properties.consumption.codes[rows].tobytes(), _encode(sets)
            layout = self._layouts.get(key)
            if layout is None:
                layout = self._layouts.put(key, self._layout(rows, sets))
            found = self._divided[placed] = _Divided(rows, layout)
        return found

    def _layout(self, rows: RowNumbers, sets: Sequence[CounterSet]) -> _Layout:
        consumed = [consumption(self._table.devices[row]) for row in rows.tolist()]
        found = []
        for each in sets:
            counters = tuple((each.name, name) for name in sorted(each.counters))
            places = [at for at, amounts in enumerate(consumed) if any(counter in amounts for counter in counters)]
            total = [milli(each.counters[name].value) for _, name in counters]
            parts = [[consumed[at].get(counter, 0) for counter in counters] for at in places]
            found.append(_Set(self._sharings.of(total, parts), counters, np.array(places, dtype=np.int64)))
        return tuple(found)


def _size_of(text: bytes) -> float:
    """The size of a device, 0 to 1, from its capacities as JSON."""
    amounts = [max(1, milli(each["value"])) for each in msgspec.json.decode(text).values()]
    return sum(map(log2, amounts)) / (_MOST_BITS * max(1, len(amounts)))
