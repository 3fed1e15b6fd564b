"""Which nodes have devices for a pod, for many nodes at once, as far as counting is exact.

Counting is exact where all candidates are devices of one node that one claim has for itself, each request names a
number, and the candidates of two requests are either the same or disjoint. One constraint that wants equal values is
counted per value, and each way to choose alternatives is counted for itself. Of devices with counters one alone may be
wanted; where several are, counting says only which nodes lack them. Other nodes are left to the search.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate, product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.asking import MOST_DEVICES, Ask
from gangline.dra.candidates import FAILS, USABLE, Candidates
from gangline.dra.counters import DEPENDS, LACKS, CounterRoom
from gangline.dra.locating import located
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
UNKNOWN = -1
"""The room of nodes if alternatives are asked for."""
_ENDLESS = 1 << 31
"""The room where nothing is asked for."""
_FEW = 3
"""Up to this number of nodes a search is faster than counting each way."""
_MOST_COMBINATIONS = 64
"""Combinations of alternatives; if there are more, nothing is counted."""
_MOST_WAYS = 16
"""Ways that are counted, each with a pass over all devices."""
_Way = dict[int, int]
"""By kind of alternatives: how many devices are given, if certain alternatives are chosen."""


class Counted(NamedTuple):
    """What counting says of some nodes."""

    outcomes: Outcomes
    room: NDArray[np.int64]
    """At most how many times each node has the devices, or UNKNOWN; for a node that is OPEN it means nothing."""


class _Cells(NamedTuple):
    """What has to be counted together: the devices of a node, with one value if there is a constraint."""

    numbers: RowNumbers
    """By device: its cell, or negative."""
    size: int
    node: RowNumbers | None
    """By cell: the position of its node; None if each node is a cell."""


class _Usable(NamedTuple):
    """The devices that alternatives of one kind may be given."""

    devices: BoolColumn
    """As far as counting knows how to count them."""
    others: BoolColumn | None
    """Those which it does not, if there are some."""


class _Special(NamedTuple):
    """What marks out devices, if some are marked out."""

    cannot_count: BoolColumn
    """Whether several claims may have the device, or what is left of its counters depends on other devices."""
    draws: BoolColumn
    """Whether the device consumes counters."""
    suffices: BoolColumn | None
    """Whether enough is left of them; None if there are none, or as if no claim had any device."""


class Counting:
    """Counts nodes for one ask."""

    def __init__(self, candidates: Candidates, counter_room: CounterRoom) -> None:
        self._candidates = candidates
        self._table = candidates.table
        self._counter_room = counter_room
        self._kinds = candidates.firsts
        self._has_alternatives = any(
            request.is_prioritized for requests in candidates.ask.requests for request in requests
        )
        self.combinations = _combinations(candidates.ask) if _is_countable(candidates.ask) else []
        """One alternative of each request, by number, in the order in which they are tried; none if none is counted."""
        self._all_ways = [self._way(numbers) for numbers in self.combinations]
        self._ways = _least(self._all_ways)
        self._has_first = _has_first(candidates.ask)
        constraints = [each for rules in candidates.ask.constraints for each in rules]
        self._attribute = candidates.properties.attribute(constraints[0].attribute) if constraints else None

    def count(self, size: int, nodes: NDArray[np.int64] | None = None, is_bare: bool = False) -> Counted:
        """The outcomes of the nodes in these rows; of the first `size` rows without.

        With `is_bare`, as if no claim had any device.
        """
        number = size if nodes is None else len(nodes)
        if not self._kinds:
            return Counted(np.full(number, FITS, dtype=np.int8), np.full(number, _ENDLESS))
        if not 0 < len(self._ways) <= _MOST_WAYS or (self._has_alternatives and number <= _FEW and not is_bare):
            return Counted(np.full(number, OPEN, dtype=np.int8), np.zeros(number, dtype=np.int64))
        counted = self._counted(self._ways, size, nodes, is_bare)
        is_open, room = counted[0]
        if len(counted) == 1:
            outcomes = (room > 0).astype(np.int8)
            outcomes[is_open] = OPEN
        else:
            outcomes = OPEN * np.logical_or.reduce([is_open for is_open, _ in counted]).astype(np.int8)
            outcomes[np.logical_or.reduce([(room > 0) & ~is_open for is_open, room in counted])] = FITS
        return Counted(outcomes, np.full(number, UNKNOWN) if self._has_alternatives else room)

    def first_fits(self, size: int, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """By node of these rows: the place of the first of the `combinations` for which it has the devices.

        -1 where it has them for none, or only a search can tell.
        """
        found = np.full(len(nodes), -1, dtype=np.int64)
        if not self._has_first or not 0 < len(self._all_ways) <= _MOST_WAYS or len(nodes) <= _FEW:
            return found
        is_left = np.ones(len(nodes), dtype=np.bool_)
        for place, (is_open, room) in enumerate(self._counted(self._all_ways, size, nodes, False)):
            is_left &= ~is_open
            found[is_left & (room > 0)] = place
            is_left &= room <= 0
        return found

    def _counted(
        self, ways: list[_Way], size: int, nodes: NDArray[np.int64] | None, is_bare: bool
    ) -> list[tuple[BoolColumn, NDArray[np.int64]]]:
        """By way and node: whether counting cannot tell, and at most how many times it has the devices."""
        rows, place = located(self._table, size, nodes)
        places = size if nodes is None else len(nodes)
        unsure = self._unsure(places, None if nodes is None else nodes.tolist(), is_bare)
        free = self._free(rows, is_bare)
        if isinstance(rows, slice):
            free &= place >= 0
        values = None if self._attribute is None else self._attribute.values[rows]
        traits = self._table.traits[rows]
        are_special = np.count_nonzero(traits & (SHAREABLE | CONSUMES)) > 0
        special = self._special(rows, traits, is_bare) if are_special else None
        usable = []
        for number in self._kinds:
            flags = self._candidates.flags(number)[rows]
            fails = free & (flags >= FAILS)
            if np.count_nonzero(fails):  # the search ends when it comes upon one, whichever way it takes
                unsure[place[fails]] = True
            usable.append(_usable(free & (flags & USABLE > 0), values, special))
        cells = _cells(place, values, places)
        return [_counted_way(way, usable, special, cells, place, unsure) for way in ways]

    def _way(self, numbers: tuple[int, ...]) -> _Way:
        """What is given if these alternatives are chosen."""
        way: _Way = {}
        for number in numbers:
            if count := self._candidates.alternatives[number].count:
                kind = self._candidates.kind_of[number]
                way[kind] = way.get(kind, 0) + count
        return way

    def _special(self, rows: RowNumbers | slice, traits: NDArray[np.uint8], is_bare: bool) -> _Special:
        draws = traits & CONSUMES > 0
        is_shareable = traits & SHAREABLE > 0
        if is_bare or not np.count_nonzero(draws):
            return _Special(is_shareable, draws, None)
        left = self._counter_room.values[rows]
        return _Special(is_shareable | draws & (left == DEPENDS), draws, left > LACKS)

    def _free(self, rows: RowNumbers | slice, is_bare: bool) -> BoolColumn:
        """For each of some rows: whether no claim has the device for itself."""
        taken = self._candidates.standing.is_taken(rows)
        return np.ones(len(taken), dtype=np.bool_) if is_bare else ~taken

    def _unsure(self, size: int, nodes: list[int] | None, is_bare: bool) -> BoolColumn:
        """Nodes that may use devices which other nodes may use too, and which matter here."""
        unsure = np.zeros(size, dtype=np.bool_)
        for placed in self._table.wide_pools if nodes is None else self._table.wide_pools_of(nodes):
            self._candidates.check()
            rows = placed.rows[self._table.node[placed.rows] < 0]
            free = self._free(rows, is_bare)
            if any(
                (free & (self._candidates.flags(number)[rows] & (USABLE | FAILS) > 0)).any() for number in self._kinds
            ):
                reach = placed.pool.reach
                unsure |= reach.mask(size) if nodes is None else np.array([node in reach for node in nodes])
        return unsure


def _usable(usable: BoolColumn, values: Codes | None, special: _Special | None) -> _Usable:
    """Of usable devices those that can be counted, and the others."""
    others = None
    if special is not None:
        others = usable & special.cannot_count
        if special.suffices is not None:
            usable = usable & (special.suffices | ~special.draws)
    if values is not None:
        lists = usable & (values < MISSING)
        others = lists if others is None else others | lists
        usable = usable & (values >= 0)
    return _Usable(usable, others if others is not None and np.count_nonzero(others) else None)


def _cells(place: RowNumbers, values: Codes | None, size: int) -> _Cells:
    """`place` has for each device the position of its node, of which there are `size`."""
    if values is None:
        return _Cells(place, size, None)
    local = np.flatnonzero((place >= 0) & (values >= 0))
    if not len(local):
        return _Cells(np.full(len(place), -1, dtype=np.int64), 0, local)
    numbers, first = kinds([place[local], values[local]])
    cells = np.full(len(place), -1, dtype=np.int64)
    cells[local] = numbers
    return _Cells(cells, len(first), place[local[first]])


def _counted_way(
    way: _Way,
    usable: list[_Usable],
    special: _Special | None,
    cells: _Cells,
    place: RowNumbers,
    unsure: BoolColumn,
) -> tuple[BoolColumn, NDArray[np.int64]]:
    """By node: whether counting cannot tell, and at most how many times it has the devices."""
    is_open = unsure.copy()
    groups: dict[bytes, tuple[BoolColumn, int]] = {}
    for kind, need in way.items():
        devices, others = usable[kind]
        if others is not None:
            is_open[place[others]] = True
        key = devices.tobytes() if len(way) > 1 else b""
        if key in groups:
            need += groups[key][1]
        else:
            for other, _ in groups.values():
                is_open[place[devices & other]] = True
        groups[key] = devices, need
    room = _room(groups.values(), cells, len(unsure))
    if special is not None:
        drawing = [(devices & special.draws, need) for devices, need in groups.values()]
        drawn = sum(need for devices, need in drawing if np.count_nonzero(devices))
        if drawn > 1 or (drawn and special.suffices is None):  # they may consume more together than is left
            several = np.zeros(len(unsure), dtype=np.bool_)
            for devices, _ in drawing:
                several[place[devices]] = True
            is_open |= several & (room > 0)
    return is_open, room


def _room(groups: Collection[tuple[BoolColumn, int]], cells: _Cells, size: int) -> NDArray[np.int64]:
    """By node: how many times each group has the number of devices that it needs, all in one cell."""
    if not groups:
        return np.full(size, _ENDLESS)
    room = np.full(cells.size, _ENDLESS)
    for usable, need in groups:
        np.minimum(room, np.bincount(cells.numbers[usable], minlength=cells.size) // need, out=room)
    if cells.node is None:
        return room
    return np.bincount(cells.node, weights=room, minlength=size).astype(np.int64)


def _combinations(ask: Ask) -> list[tuple[int, ...]]:
    """The ways to choose alternatives, given by their numbers; none if there are too many."""
    lengths = [len(request.alternatives) for requests in ask.requests for request in requests]
    if prod(lengths) > _MOST_COMBINATIONS:
        return []
    ends = accumulate(lengths)
    return list(product(*[range(end - length, end) for end, length in zip(ends, lengths, strict=True)]))


def _least(ways: list[_Way]) -> list[_Way]:
    """Those of the ways that are to be counted.

    Of two ways, one of which asks for no more of anything than the other, it is the only one that counts: where there
    are devices for the other, there are for this one.
    """
    found: list[_Way] = []
    for way in ways:
        if not any(_asks_no_more(other, way) for other in found):
            found = [other for other in found if not _asks_no_more(way, other)]
            found.append(way)
    return found


def _asks_no_more(one: _Way, other: _Way) -> bool:
    return all(need <= other.get(kind, 0) for kind, need in one.items())


def _is_countable(ask: Ask) -> bool:
    """Whether counting may say anything."""
    if any(each.is_all or each.is_admin for each in ask.alternatives):
        return False
    for requests in ask.requests:
        if sum(max(each.count for each in request.alternatives) for request in requests) > MOST_DEVICES:
            return False
    constraints = [each for rules in ask.constraints for each in rules]
    if not constraints:
        return True
    names = constraints[0].requests
    are_all = all(each.is_named_in(names) for each in ask.alternatives)
    return len(constraints) == len(ask.claims) == 1 and not constraints[0].is_distinct and are_all


def _has_first(ask: Ask) -> bool:
    """Whether the search finds the first combination for which there are devices.

    With a constraint it may not, if a request before the alternatives is given a device: the search tries the other
    alternatives with the value of this device before it tries another device.
    """
    return not any(ask.constraints) or not any(each.is_prioritized for each in ask.requests[0][1:])
