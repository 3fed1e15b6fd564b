"""Which nodes have devices for a pod, for many nodes at once, as far as counting is exact.

Counting is exact where all candidates are devices of one node that one claim has for itself. Requests may ask for a
number or for all devices, and their candidates may overlap (`dealing`). Constraints that want equal values are counted
per value if all are about the same requests, and one that wants distinct values if it is about all requests. Each way
to choose alternatives is counted for itself. Of devices with counters, and of devices that several claims may have, one
alone may be wanted; where several are, counting says only which nodes lack them. Other nodes are left to the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.asking import MOST_DEVICES
from gangline.dra.candidates import FAILS, MEANT, USABLE, Candidates
from gangline.dra.counters import DEPENDS, LACKS, CounterRoom
from gangline.dra.dealing import ENDLESS, Cells, DeviceDemand, Room, deal
from gangline.dra.locating import located
from gangline.dra.matrices import OwnDevices, equal_columns, picked
from gangline.dra.properties import MISSING, Codes
from gangline.dra.reading import CONSUMES, SHAREABLE
from gangline.dra.rows import RowNumbers, kinds, packed
from gangline.dra.standing import IN_USE
from gangline.dra.ways import DeviceWant, Way, Ways
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
"""The room of nodes if alternatives are asked for, and of nodes whose devices several claims may have."""
_FEW = 3
"""Up to this number of nodes a search is faster than counting each way."""
_MOST_WAYS = 16
"""Ways that are counted, each with a pass over all devices."""
_MANY = 256
"""Of so many nodes, or more, one of each kind is counted."""
_NO_CODE = -1
"""Stands for a device that a node does not have."""


class Counted(NamedTuple):
    """What counting says of some nodes."""

    outcomes: Outcomes
    room: Room
    """At most how many times each node has the devices, or UNKNOWN; for a node that is OPEN it means nothing."""


class _CountedWay(NamedTuple):
    """What counting says of one way: columns over the nodes."""

    is_open: BoolColumn
    """Counting cannot tell."""
    room: Room
    """At most how many times the node has the devices."""
    is_vague: BoolColumn
    """The node has the devices more often, perhaps."""


class _Special(NamedTuple):
    """What marks out devices, if some are marked out."""

    is_shared: BoolColumn
    """Whether several claims may have the device, or claims have shares of it."""
    draws: BoolColumn
    """Whether the device consumes counters."""
    cannot_count: BoolColumn
    """Whether what is left for the device depends on which other devices are given."""
    suffices: BoolColumn | None
    """Whether enough is left of its counters; None if there are none, or as if no claim had any device."""


class _Scene(NamedTuple):
    """The devices that are looked at: columns over the devices, except for `unsure`."""

    rows: RowNumbers | slice
    place: RowNumbers
    """The position of the device's node; negative for devices of other nodes, and of several."""
    here: BoolColumn
    """Whether the place is not negative."""
    free: BoolColumn
    """As `here`, if no claim has the device for itself."""
    values: list[Codes]
    """By constraint: the values of its attribute."""
    special: _Special | None
    unsure: BoolColumn
    """By node: whether only a search can tell, whichever way is chosen."""
    is_bare: bool


class _Usable(NamedTuple):
    """The devices that alternatives may be given."""

    devices: BoolColumn
    """The devices that can be counted."""
    others: BoolColumn | None
    """The devices that cannot be counted."""
    shared: BoolColumn | None
    """The devices that several claims may have."""
    wanted: Room | None
    """By node: how many devices are wanted, if all are."""


class Counting:
    """Counts nodes for one ask."""

    def __init__(self, candidates: Candidates, counter_room: CounterRoom, own_devices: OwnDevices) -> None:
        self._candidates = candidates
        self._table = candidates.table
        self._counter_room = counter_room
        self._own_devices = own_devices
        self._ways = ways = Ways(candidates.ask, candidates.kind_of)
        self._numbers = {want: number for number, want in reversed([*enumerate(ways.wants)])}
        """By want: the number of one of its alternatives."""
        self._has_all = any(want.is_all for want in ways.wants)
        self._attributes = [candidates.properties.attribute(name) for name in ways.attributes]

    @property
    def combinations(self) -> list[tuple[int, ...]]:
        """One alternative of each request, by number, in the order in which they are tried; none if none is counted."""
        return self._ways.combinations

    def count(self, size: int, nodes: NDArray[np.int64] | None = None, is_bare: bool = False) -> Counted:
        """The outcomes of the nodes in these rows; of the first `size` rows without.

        With `is_bare`, as if no claim had any device.
        """
        ways, number = self._ways, size if nodes is None else len(nodes)
        if not ways.wants:
            return Counted(np.full(number, FITS, dtype=np.int8), np.full(number, ENDLESS))
        if not 0 < len(ways.least) <= _MOST_WAYS or (ways.has_alternatives and number <= _FEW and not is_bare):
            return Counted(np.full(number, OPEN, dtype=np.int8), np.zeros(number, dtype=np.int64))
        outcomes = np.zeros(number, dtype=np.int8)
        room = np.full(number, UNKNOWN)
        for way in self._counted(ways.least, size, nodes, is_bare):
            outcomes[way.is_open & (outcomes == NONE)] = OPEN
            outcomes[(way.room > 0) & ~way.is_open] = FITS
            if not ways.has_alternatives:
                room = np.where(way.is_vague, UNKNOWN, way.room)
        return Counted(outcomes, room)

    def first_fits(self, size: int, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """By node of these rows: the place of the first of the `combinations` for which it has the devices.

        -1 where it has them for none, or only a search can tell.
        """
        found = np.full(len(nodes), -1, dtype=np.int64)
        ways = self._ways
        if not ways.has_first or not 0 < len(ways.all) <= _MOST_WAYS or len(nodes) <= _FEW:
            return found
        is_left = np.ones(len(nodes), dtype=np.bool_)
        for place, way in enumerate(self._counted(ways.all, size, nodes, False, ways.may_overlap)):
            is_left &= ~way.is_open
            found[is_left & (way.room > 0)] = place
            is_left &= way.room <= 0
        return found

    def _counted(
        self, ways: list[Way], size: int, nodes: NDArray[np.int64] | None, is_bare: bool, may_overlap: bool = True
    ) -> list[_CountedWay]:
        scene = self._scene(size, nodes, is_bare)
        alike = self._alike(scene, size, nodes) if any(len(way) > 1 for way in ways) else None
        if alike is None:
            return self._counted_on(scene, ways, may_overlap)
        numbers, first = alike
        some = self._scene(size, first if nodes is None else nodes[first], is_bare, scene.unsure[first])
        counted = self._counted_on(some, ways, may_overlap)
        return [_CountedWay(each.is_open[numbers], each.room[numbers], each.is_vague[numbers]) for each in counted]

    def _alike(
        self, scene: _Scene, size: int, nodes: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
        """By node: a number, equal for nodes for which counting says the same. By number: the place of such a node.

        None if it is faster to count each node.
        """
        if scene.special is not None or not isinstance(scene.rows, slice) or len(scene.unsure) < _MANY:
            return None
        rows = self._own_devices.rows(size)
        if rows is None:
            return None
        of = slice(None) if nodes is None else nodes
        matters = self._candidates.matter(scene.rows)
        flags = [self._candidates.flags(number) for number in self._candidates.firsts]
        kinds_of = packed([matters & scene.free, *flags])
        values = zip(self._ways.attributes, scene.values, strict=True)
        relatives = [self._own_devices.relative(name, codes, rows)[:, of] for name, codes in values]
        matrix = packed([picked(kinds_of, rows[:, of], _NO_CODE), *relatives])
        numbers, first = equal_columns(np.vstack([scene.unsure, matrix]))
        return None if len(first) > len(numbers) // 2 else (numbers, first)

    def _counted_on(self, scene: _Scene, ways: list[Way], may_overlap: bool) -> list[_CountedWay]:
        usable = {want: self._usable(want, number, scene) for want, number in self._numbers.items()}
        bound = [each.devices for want, each in usable.items() if want.is_bound]
        cells = _cells(scene, bound, self._ways.is_distinct) if bound else None
        found = []
        for way in ways:
            self._candidates.check()
            found.append(_counted_way(way, usable, scene, cells, may_overlap))
        return found

    def _scene(
        self, size: int, nodes: NDArray[np.int64] | None, is_bare: bool, unsure: BoolColumn | None = None
    ) -> _Scene:
        rows, place = located(self._table, size, nodes)
        here = place >= 0
        traits = self._table.traits[rows]
        is_shared = traits & SHAREABLE > 0
        if not is_bare:  # a driver may have made a device that is in use one for a single claim
            is_shared |= self._candidates.standing.states[rows] & IN_USE > 0
        draws = traits & CONSUMES > 0
        are_special = np.count_nonzero(is_shared) or np.count_nonzero(draws)
        return _Scene(
            rows,
            place,
            here,
            here & self._free(rows, is_bare),
            [each.values[rows] for each in self._attributes],
            self._special(rows, is_shared, draws, is_bare) if are_special else None,
            self._unsure(size, nodes, is_bare) if unsure is None else unsure,
            is_bare,
        )

    def _usable(self, want: DeviceWant, number: int, scene: _Scene) -> _Usable:
        """The devices that these alternatives may be given. Notes in the scene of which nodes nothing can be said."""
        self._candidates.check()
        flags = self._candidates.flags(number)[scene.rows]
        fails = (scene.here if want.is_admin or want.is_all else scene.free) & (flags >= FAILS)
        if np.count_nonzero(fails):  # the search ends when it comes upon one, whichever way it takes
            scene.unsure[scene.place[fails]] = True
        usable = (scene.here if want.is_admin else scene.free) & (flags & USABLE > 0)
        wanted = _wanted(scene, scene.here & (flags & MEANT > 0)) if want.is_all else None
        others = shared = None
        if scene.special is not None:
            others = usable & scene.special.cannot_count
            if scene.special.suffices is not None:
                usable = usable & (scene.special.suffices | ~scene.special.draws)
            shared = usable & scene.special.is_shared
            if not scene.is_bare and np.count_nonzero(shared):
                usable &= ~self._is_exhausted(number, scene.rows, shared)
        if want.is_bound:
            for values in scene.values:
                lists = usable & (values < MISSING)
                others = lists if others is None else others | lists
                usable = usable & (values >= 0)
        if shared is not None:
            shared &= usable
        return _Usable(usable, _some(others), _some(shared), wanted)

    def _is_exhausted(self, number: int, rows: RowNumbers | slice, shared: BoolColumn) -> BoolColumn:
        """Whether other claims have so much of these devices that too little is left for one more share."""
        in_use = np.flatnonzero(shared & (self._candidates.standing.states[rows] & IN_USE > 0))
        found = np.zeros(len(shared), dtype=np.bool_)
        if len(in_use):
            found[in_use] = ~self._candidates.suffice(number, in_use if isinstance(rows, slice) else rows[in_use])
        return found

    def _special(self, rows: RowNumbers | slice, is_shared: BoolColumn, draws: BoolColumn, is_bare: bool) -> _Special:
        if is_bare or not np.count_nonzero(draws):
            return _Special(is_shared, draws, is_shared & draws, None)
        left = self._counter_room.values[rows]
        return _Special(is_shared, draws, draws & (is_shared | (left == DEPENDS)), left > LACKS)

    def _free(self, rows: RowNumbers | slice, is_bare: bool) -> BoolColumn:
        """For each of some rows: whether no claim has the device for itself."""
        taken = self._candidates.standing.is_taken(rows)
        return np.ones(len(taken), dtype=np.bool_) if is_bare else ~taken

    def _unsure(self, size: int, of: RowNumbers | None, is_bare: bool) -> BoolColumn:
        """Nodes that may use devices which other nodes may use too, and which matter here. If all devices of a kind are
        asked for, also nodes that see a pool which cannot be used.
        """
        nodes = None if of is None else of.tolist()
        pools = [*self._table.unusable_pools] if self._has_all else []
        for placed in self._table.wide_pools if nodes is None else self._table.wide_pools_of(nodes):
            self._candidates.check()
            rows = placed.rows[self._table.node[placed.rows] < 0]
            if any(self._matters(want, number, rows, is_bare) for want, number in self._numbers.items()):
                pools.append(placed)
        unsure = np.zeros(size if nodes is None else len(nodes), dtype=np.bool_)
        for reach in [placed.pool.reach for placed in pools]:
            unsure |= reach.mask(size) if nodes is None else np.array([node in reach for node in nodes])
        return unsure

    def _matters(self, want: DeviceWant, number: int, rows: RowNumbers, is_bare: bool) -> bool:
        """Whether some of these devices may make a difference."""
        flags = self._candidates.flags(number)[rows]
        if want.is_all or want.is_admin:
            return bool((flags > 0).any())
        return bool((self._free(rows, is_bare) & (flags & (USABLE | FAILS) > 0)).any())


def _some(column: BoolColumn | None) -> BoolColumn | None:
    """The column, if it is true somewhere."""
    return column if column is not None and np.count_nonzero(column) else None


def _wanted(scene: _Scene, meant: BoolColumn) -> Room:
    """By node: how many devices there are, all of which are wanted; notes the nodes where that depends on more."""
    if scene.special is not None:
        scene.unsure[scene.place[meant & (scene.special.is_shared | scene.special.draws)]] = True
    return np.bincount(scene.place[meant], minlength=len(scene.unsure))


def _cells(scene: _Scene, bound: list[BoolColumn], is_distinct: bool) -> Cells:
    """The cells of the devices that bound alternatives may be given."""
    local = np.flatnonzero(np.logical_or.reduce(bound))
    cells = np.full(len(scene.place), -1, dtype=np.int64)
    if not len(local):
        return Cells(cells, local, is_distinct)
    numbers, first = kinds([scene.place[local], *(values[local] for values in scene.values)])
    cells[local] = numbers
    return Cells(cells, scene.place[local[first]], is_distinct)


def _counted_way(
    way: Way, usable: dict[DeviceWant, _Usable], scene: _Scene, cells: Cells | None, may_overlap: bool
) -> _CountedWay:
    """What counting says if these alternatives are chosen. Without `may_overlap` it says nothing of nodes with a device
    that several of them may be given.
    """
    place, size = scene.place, len(scene.unsure)
    is_open, is_vague = scene.unsure.copy(), np.zeros(size, dtype=np.bool_)
    demands, number = [], sum(way.values())
    for want, need in way.items():
        found = usable[want]
        if found.others is not None:
            is_open[place[found.others]] = True
        if found.shared is not None:
            (is_vague if number == 1 else is_open)[place[found.shared]] = True
        wanted = need if found.wanted is None else need * found.wanted
        demands.append(DeviceDemand(found.devices, wanted, want.is_bound, not want.is_admin))
    if any(want.is_all for want in way):  # a claim may get too many
        is_open |= sum(each.need for each in demands) > MOST_DEVICES
    dealt = deal(demands, place, size, cells)
    if dealt is None:
        return _CountedWay(np.ones(size, dtype=np.bool_), np.zeros(size, dtype=np.int64), is_vague)
    if not may_overlap:
        is_open |= dealt.overlaps
    if scene.special is not None:
        is_open |= _may_overdraw(way, usable, scene, scene.special) & (dealt.room > 0)
    return _CountedWay(is_open, dealt.room, is_vague)


def _may_overdraw(way: Way, usable: dict[DeviceWant, _Usable], scene: _Scene, special: _Special) -> BoolColumn:
    """By node: whether the devices may consume more of the counters together than is left."""
    drawing = [(usable[want].devices & special.draws, need) for want, need in way.items()]
    drawn = sum(need for devices, need in drawing if np.count_nonzero(devices))
    found = np.zeros(len(scene.unsure), dtype=np.bool_)
    if drawn > 1 or (drawn and special.suffices is None):
        for devices, _ in drawing:
            found[scene.place[devices]] = True
    return found
