"""The slice table: a row for each device of a ResourceSlice that some node may use.

Slices are added and dropped one by one. `settle` then works out only the pools of these slices again. A slice that is
still there keeps its rows, and a slice that replaces another one gets the other's rows. `rows` notes which rows have
another device, and `touched` for which nodes something has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from gangline.dra.placed import PlacedPool, PlacedPools, note_reach
from gangline.dra.pools import Pool, PoolCondition, Reach, devices_reach, gather
from gangline.dra.reading import check, traits_of
from gangline.dra.rows import FreeRows, RowNumbers, Rows, grown
from gangline.dra.usage import DeviceId
from gangline.errors import InvalidObject
from gangline.model.resource_slices import Device, ResourceSlice
from gangline.state.changes import NODE, Changes
from gangline.state.node_view import NodeView
from gangline.status import BoolColumn

SEVERAL = -1
"""In place of a node: several nodes may use the device."""
NOWHERE = -2
"""In place of a node: no node may use the device, or the row has no device."""
_WEAR = 100_000
"""How often a row may get another device, in a table of any size, before `is_worn` asks for a new table."""
_NO_DEVICE = Device("")
_NO_ID = ("", "", "")

PoolKey = tuple[str, str]
"""Driver and name of a pool."""


@dataclass(slots=True, eq=False)
class _KnownPool:
    """All slices of one pool, and how nodes see it."""

    members: set[int] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    """The nodes that slices of the pool have named, by name."""
    pools: list[Pool] = field(default_factory=list)
    placed: list[PlacedPool] = field(default_factory=list)
    rowed: dict[int, None] = field(default_factory=dict)
    """Slices whose devices have rows."""
    reached: dict[int, list[Reach]] = field(default_factory=dict)
    """By slice whose devices select nodes one by one: the nodes of each of its devices."""


class SliceTable:
    """The devices of all pools that some node may use."""

    def __init__(self, slices: Iterable[ResourceSlice], nodes: NodeView, by_name: bool = False) -> None:
        """`nodes` is a view over all rows. A slice with a quantity that cannot be read is left out: see `refused`.

        Where slices contradict each other, the first one counts: the first one given, or (`by_name`) by name.
        """
        self.refused: dict[str, InvalidObject] = {}
        """By the name of a slice: why it is left out; its pool is incomplete."""
        self.slices: dict[int, ResourceSlice] = {}
        """By number. A slice that has changed has another number."""
        self.rows = Rows()
        self.touched = Changes()
        """The rows of nodes whose devices have changed; `standing` also notes here that devices are taken or free."""
        self.moved = Changes()
        """The rows of nodes whose devices have changed; devices that are taken or free again are not noted."""
        self.devices: list[Device] = []
        """By row."""
        self.ids: list[DeviceId] = []
        """By row: driver, pool and name."""
        self.slice_of: list[int] = []
        """By row: the number of the device's slice."""
        self.index: dict[DeviceId, list[int]] = {}
        """By driver, pool and name: the rows."""
        self._node = np.zeros(0, dtype=np.int64)
        self._traits = np.zeros(0, dtype=np.uint8)
        self._numbers = count()
        self._by_name = by_name
        self._is_settled = False  # nobody has seen the table yet
        self._groups: dict[PoolKey, _KnownPool] = {}
        self._by_node: dict[str, set[PoolKey]] = {}
        """By name of a node: the pools with a slice for this node."""
        self._selecting: set[PoolKey] = set()  # pools with slices or devices that select nodes
        self._dirty: dict[PoolKey, None] = {}
        self._ranges: dict[int, tuple[str, range]] = {}
        """By slice with rows: its name and rows."""
        self._free = FreeRows()
        self._placed = PlacedPools()
        for each in slices:
            self.put(each)
        self.settle(nodes)

    def __len__(self) -> int:
        return self.rows.size

    @property
    def node(self) -> RowNumbers:
        """By row: the row of the only node that may use the device, or SEVERAL or NOWHERE."""
        return self._node[: self.rows.size]

    @property
    def traits(self) -> NDArray[np.uint8]:
        """By row: the traits SHAREABLE, CONSUMES, TAINTED and HAS_POLICY of the device, as flags."""
        return self._traits[: self.rows.size]

    def traits_on(self, rows: RowNumbers) -> NDArray[np.uint8]:
        """As `traits`, of some rows, which ascend; nobody may write to the column."""
        return self.traits if len(rows) == self.rows.size else self.traits[rows]

    def node_of(self, row: int) -> int:
        """As `node`, of one row."""
        return self._node.item(row)

    def traits_of(self, row: int) -> int:
        """As `traits`, of one row."""
        return self._traits.item(row)

    @property
    def is_worn(self) -> bool:
        """Whether so much has changed that a new table is better: numbers of values that nobody has any more remain."""
        return self.rows.turnover > _WEAR + 8 * (self.rows.size - self._free.number)

    @property
    def waiting(self) -> int:
        """How many pools have changed since the table was last settled."""
        return len(self._dirty)

    # What changes

    def put(self, each: ResourceSlice) -> int:
        """A slice came; returns its number. The table shows it after `settle`."""
        number = next(self._numbers)
        self.refused.pop(each.metadata.name, None)
        try:
            check(each)
        except InvalidObject as error:
            self.refused[each.metadata.name] = error
            return number
        self.slices[number] = each
        self._groups.setdefault(_key(each), _KnownPool()).members.add(number)
        self._changed(each)
        return number

    def drop(self, number: int) -> None:
        """Remove a slice. The table shows the change after `settle`."""
        each = self.slices.pop(number, None)
        if each is not None:
            self._groups[_key(each)].members.discard(number)
            self._changed(each)

    def _order(self, number: int) -> tuple[str, int]:
        return self.slices[number].metadata.name if self._by_name else "", number

    def _changed(self, each: ResourceSlice) -> None:
        key, spec = _key(each), each.spec
        self._dirty[key] = None
        if spec.node_name:
            self._groups[key].nodes.add(spec.node_name)
            self._by_node.setdefault(spec.node_name, set()).add(key)
        if spec.node_selector is not None or spec.per_device_node_selection:
            self._selecting.add(key)

    def node_changed(self, name: str) -> None:
        """A node was added or deleted, or its labels changed. The table shows the change after `settle`."""
        self._dirty.update(dict.fromkeys((*self._by_node.get(name, ()), *self._selecting)))

    def nodes_of(self, each: ResourceSlice) -> set[str] | None:
        """The names of the only nodes to which a change of this slice can matter; None if it may matter to any node."""
        group = self._groups.get(_key(each))
        if group is None or not all(_is_local(self.slices[number]) for number in group.members):
            return None
        return group.nodes

    def depends_on(self, name: str) -> bool:
        """Whether a change of this node may matter to other nodes too."""
        keys = self._by_node.get(name, ())
        return bool(self._selecting) or not all(
            _is_local(self.slices[number]) for key in keys for number in self._groups[key].members
        )

    def settle(self, nodes: NodeView) -> None:
        """Bring the table up to date with all changes so far. `nodes` is a view over all rows of nodes."""
        for key in self._dirty:
            self._settle(key, nodes)
        self._dirty = {}
        self._is_settled = True

    def _settle(self, key: PoolKey, nodes: NodeView) -> None:
        group = self._groups[key]
        pools = gather(self.slices, sorted(group.members, key=self._order), nodes)
        usable = [pool for pool in pools if pool.condition is PoolCondition.USABLE]
        rowed = dict.fromkeys(number for pool in usable for number in (*pool.slices, *pool.others))
        reached = {
            number: devices_reach(self.slices[number], nodes)
            for number in rowed
            if self.slices[number].spec.per_device_node_selection
        }
        if pools == group.pools and reached == group.reached:
            return
        for each in group.placed:
            self._withdraw(each)
        self._give_rows(rowed, group.rowed)
        offered = {number for pool in usable for number in pool.slices}
        for number in rowed:
            self._locate(number, nodes if number in offered else None)
        group.pools, group.rowed, group.reached = pools, rowed, reached
        group.placed = [self._place(pool) for pool in pools]
        if not group.members:
            self._forget(key)

    def _forget(self, key: PoolKey) -> None:
        """Drop a pool that has no slices any more."""
        self._selecting.discard(key)
        for name in self._groups.pop(key).nodes:
            self._by_node[name].discard(key)
            if not self._by_node[name]:
                del self._by_node[name]

    def _give_rows(self, rowed: dict[int, None], before: dict[int, None]) -> None:
        """Give rows to slices: a new slice gets the rows of a dropped slice of its name and length, else free rows."""
        left = {number: self._ranges.pop(number) for number in before if number not in rowed} if before else {}
        by_name = {(name, len(rows)): number for number, (name, rows) in left.items()}
        for number in rowed:
            if number in before:
                continue
            each = self.slices[number]
            devices, name = each.spec.devices, each.metadata.name
            old = by_name.pop((name, len(devices)), None)
            rows = left.pop(old)[1] if old is not None else self._free_rows(len(devices))
            self._ranges[number] = name, rows
            driver, pool = _key(each)
            for row, device in zip(rows, devices, strict=True):
                self._assign(row, number, device, (driver, pool, device.name))
        for _, rows in left.values():
            for row in rows:
                self._assign(row, -1, _NO_DEVICE, _NO_ID)
                self._node[row] = NOWHERE
            self._free.put(rows)

    def _free_rows(self, number: int) -> range:
        free = self._free.get(number)
        if free is not None:
            return free
        first = self.rows.size
        self.rows.size = size = first + number
        self._node, self._traits = grown(self._node, size), grown(self._traits, size)
        self._node[first:size] = NOWHERE
        self.devices += [_NO_DEVICE] * number
        self.ids += [_NO_ID] * number
        self.slice_of += [-1] * number
        return range(first, size)

    def _assign(self, row: int, number: int, device: Device, id_: DeviceId) -> None:
        """Put a device into a row."""
        self.slice_of[row] = number
        before, self.devices[row] = self.devices[row], device
        old = self.ids[row]
        if old != id_:
            if old is not _NO_ID:
                self.index[old].remove(row)
                if not self.index[old]:
                    del self.index[old]
            if id_ is not _NO_ID:
                self.index.setdefault(id_, []).append(row)
            self.ids[row] = id_
        elif before == device:
            return
        self._traits[row] = traits_of(device)
        self.rows.note(row)

    def _locate(self, number: int, nodes: NodeView | None) -> None:
        """Write which node may use the devices of a slice; with `nodes` None no pool offers the devices to any node."""
        name = self.slices[number].spec.node_name
        where = NOWHERE if nodes is None else SEVERAL
        if nodes is not None and name:
            row = nodes.row_of(name)
            where = NOWHERE if row is None else row
        _, rows = self._ranges[number]
        if rows and self._node[rows.start] != where:
            self._node[rows.start : rows.stop] = where
            for row in rows:
                self.rows.note(row)

    def _place(self, pool: Pool) -> PlacedPool:
        ranges = [np.arange(each.start, each.stop) for _, each in map(self._ranges.__getitem__, pool.slices)]
        rows = ranges[0] if len(ranges) == 1 else np.concatenate(ranges) if ranges else np.arange(0)
        specs = [self.slices[number].spec for number in pool.slices]
        has_wide = any(not spec.node_name and spec.devices for spec in specs)
        placed = PlacedPool(pool, rows, has_wide, any(spec.per_device_node_selection for spec in specs))
        self._placed.add(placed)
        self._note(pool)
        return placed

    def _withdraw(self, placed: PlacedPool) -> None:
        self._placed.remove(placed)
        self._note(placed.pool)

    def _note(self, pool: Pool) -> None:
        """The nodes of a pool see a change."""
        if self._is_settled:
            note_reach(self.touched, pool.reach, NODE)
            note_reach(self.moved, pool.reach, NODE)

    # What there is

    def pools_of(self, node: int) -> list[PlacedPool]:
        """The pools that a node sees, in the order in which they are tried."""
        return self._placed.seen_by(node)

    @property
    def placed_with(self) -> Mapping[int, list[PlacedPool]]:
        """By slice: the pools that offer its devices to some nodes, or know them as those of other nodes."""
        return self._placed.with_slice

    @property
    def pools(self) -> Iterator[Pool]:
        """All pools, as each group of nodes sees them."""
        return (pool for group in self._groups.values() for pool in group.pools)

    @property
    def placed(self) -> Iterator[PlacedPool]:
        """All pools, with the rows of their devices; pools that cannot be used have no rows."""
        return (placed for group in self._groups.values() for placed in group.placed)

    @property
    def wide_pools(self) -> Iterable[PlacedPool]:
        """Pools with devices that several nodes may use."""
        return self._placed.wide

    @property
    def unusable_pools(self) -> Iterable[PlacedPool]:
        """Incomplete and invalid pools."""
        return self._placed.unusable

    def see_invalid(self, size: int) -> BoolColumn | None:
        """For the first `size` nodes: whether a pool is invalid as the node sees it. None if no pool is invalid."""
        return self._placed.see_invalid(size)

    def wide_pools_of(self, nodes: Sequence[int]) -> list[PlacedPool]:
        """As `wide_pools`, for some nodes alone."""
        return [each for each in self._placed.wide if any(node in each.pool.reach for node in nodes)]

    def rows_on(self, nodes: Iterable[int]) -> RowNumbers:
        """The rows of the devices that one of these nodes alone may use."""
        own = [each for node in nodes for each in self._placed.own(node)]
        found = [each.rows for each in own if not each.has_wide]
        if len(found) < len(own):
            mixed = [each.rows for each in own if each.has_wide]
            rows = np.concatenate(mixed)
            found.append(rows[self._node[rows] >= 0])
        return np.concatenate(found) if found else np.arange(0)

    def rows_of_slice(self, number: int) -> range:
        """The rows of a slice. KeyError if it has none."""
        return self._ranges[number][1]

    def reaches(self, row: int, node: int) -> bool:
        """Whether a node may use the device in a row, if the node sees the device's pool."""
        return not self.slices[self.slice_of[row]].spec.per_device_node_selection or node in self.reach_of(row)

    def reach_of(self, row: int) -> Reach:
        """The nodes of a device that selects nodes itself."""
        number = self.slice_of[row]
        return self._groups[_key(self.slices[number])].reached[number][row - self._ranges[number][1].start]


def _is_local(each: ResourceSlice) -> bool:
    """Whether only one node sees the slice."""
    return bool(each.spec.node_name) and not each.spec.shared_counters


def _key(each: ResourceSlice) -> PoolKey:
    return each.spec.driver, each.spec.pool.name
