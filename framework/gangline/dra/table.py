"""The slice table: a row for each device of a ResourceSlice that some node may use.

Slices come and go one by one. `settle` then looks again at their pools alone: a slice that is still there keeps its
rows, and one that takes the place of another gets its rows. `rows` notes which rows have another device, and `touched`
for which nodes something has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gangline.dra.placed import PlacedPool, note_reach
from gangline.dra.pools import Pool, PoolCondition, Reach, devices_reach, gather
from gangline.dra.reading import check, traits_of
from gangline.dra.rows import RowNumbers, Rows, grown
from gangline.dra.usage import DeviceId
from gangline.errors import InvalidObject
from gangline.model.resource_slices import Device, ResourceSlice
from gangline.state.changes import NODE, Changes
from gangline.state.node_view import NodeView

SEVERAL = -1
"""In place of a node: several nodes may use the device."""
NOWHERE = -2
"""In place of a node: no node may use the device, or there is none in the row."""
_WEAR = 100_000
"""How many rows may get other devices in a table of any size, before `is_worn` asks for a new table."""
_NO_DEVICE = Device("")
_NO_ID = ("", "", "")

PoolKey = tuple[str, str]
"""Driver and name of a pool."""


@dataclass(slots=True, eq=False)
class _KnownPool:
    """All slices of one pool, and how nodes see it."""

    members: set[int] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    """Names of nodes that slices have named."""
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
        """The rows of nodes whose devices have changed; who counts what is taken of devices notes that here too."""
        self.moved = Changes()
        """The rows of nodes whose devices have changed, whatever is taken of them."""
        self.devices: list[Device] = []
        """By row."""
        self.ids: list[DeviceId] = []
        """By row: driver, pool and name."""
        self.slice_of: list[int] = []
        """By row: the number of its slice."""
        self.index: dict[DeviceId, list[int]] = {}
        """By driver, pool and name: the rows."""
        self.placed_with: dict[int, list[PlacedPool]] = {}
        """By slice: the pools that offer its devices to some nodes, or know them as those of other nodes."""
        self._node = np.zeros(0, dtype=np.int64)
        self._traits = np.zeros(0, dtype=np.uint8)
        self._next = 0
        self._by_name = by_name
        self._is_settled = False
        """Whether somebody may have seen the table."""
        self._groups: dict[PoolKey, _KnownPool] = {}
        self._by_node: dict[str, set[PoolKey]] = {}
        """By name of a node: the pools with a slice for this node."""
        self._selecting: set[PoolKey] = set()
        """Pools with slices or devices that select nodes."""
        self._dirty: dict[PoolKey, None] = {}
        self._ranges: dict[int, tuple[str, range]] = {}
        """By slice with rows: its name and rows."""
        self._free: dict[int, list[range]] = {}
        """By length: ranges of so many free rows."""
        self._vacant = 0
        self._own: dict[int, list[PlacedPool]] = {}
        """By row of a node: the pools as this node alone sees them."""
        self._common: dict[PlacedPool, None] = {}
        """The other pools."""
        self._wide: dict[PlacedPool, None] = {}
        """Pools with devices that several nodes may use."""
        self._seen: dict[int, list[PlacedPool]] = {}
        """By row of a node: what `pools_of` has found."""
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
        """By row: SHAREABLE, CONSUMES, TAINTED and HAS_POLICY, as far as they are true."""
        return self._traits[: self.rows.size]

    def node_of(self, row: int) -> int:
        """As `node`, of one row."""
        return self._node.item(row)

    def traits_of(self, row: int) -> int:
        """As `traits`, of one row."""
        return self._traits.item(row)

    @property
    def is_worn(self) -> bool:
        """Whether so much has changed that a new table is better: numbers of values that nobody has any more remain."""
        return self.rows.turnover > _WEAR + 8 * (self.rows.size - self._vacant)

    # What changes

    def put(self, each: ResourceSlice) -> int:
        """A slice came; returns its number. The table shows it after `settle`."""
        number = self._next
        self._next += 1
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
        """A slice went."""
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
        """A node came, went, or its labels changed. The table shows it after `settle`."""
        self._dirty.update(dict.fromkeys((*self._by_node.get(name, ()), *self._selecting)))

    def nodes_of(self, each: ResourceSlice) -> set[str] | None:
        """Names of nodes to which alone a change of this slice can matter; None if it may matter to any."""
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
        """Show all changes. `nodes` is a view over all rows."""
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
        """The pool has no slices any more."""
        self._selecting.discard(key)
        for name in self._groups.pop(key).nodes:
            self._by_node[name].discard(key)
            if not self._by_node[name]:
                del self._by_node[name]

    def _give_rows(self, rowed: dict[int, None], before: dict[int, None]) -> None:
        """Give rows to slices, those of slices that have gone first."""
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
            self._free.setdefault(len(rows), []).append(rows)
            self._vacant += len(rows)

    def _free_rows(self, count: int) -> range:
        free = self._free.get(count)
        if free:
            self._vacant -= count
            return free.pop()
        first = self.rows.size
        self.rows.size = size = first + count
        self._node, self._traits = grown(self._node, size), grown(self._traits, size)
        self._node[first:size] = NOWHERE
        self.devices += [_NO_DEVICE] * count
        self.ids += [_NO_ID] * count
        self.slice_of += [-1] * count
        return range(first, size)

    def _assign(self, row: int, number: int, device: Device, id_: DeviceId) -> None:
        """The device is in the row from now on."""
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
        """Say on which node the devices of a slice are; without `nodes`, no pool offers them."""
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
        if has_wide:
            self._wide[placed] = None
        if pool.reach.is_inverted or len(pool.reach.rows) > 1:
            self._common[placed] = None
        else:
            for node in pool.reach.rows:
                self._own.setdefault(node, []).append(placed)
        for number in (*pool.slices, *pool.others):
            self.placed_with.setdefault(number, []).append(placed)
        self._note(pool)
        return placed

    def _withdraw(self, placed: PlacedPool) -> None:
        pool = placed.pool
        self._wide.pop(placed, None)
        if placed in self._common:
            del self._common[placed]
        else:
            for node in pool.reach.rows:
                self._own[node].remove(placed)
                if not self._own[node]:
                    del self._own[node]
        for number in (*pool.slices, *pool.others):
            self.placed_with[number].remove(placed)
            if not self.placed_with[number]:
                del self.placed_with[number]
        self._note(pool)

    def _note(self, pool: Pool) -> None:
        """The nodes of a pool see a change."""
        if pool.reach.is_inverted:
            self._seen.clear()
        else:
            for node in pool.reach.rows:
                self._seen.pop(node, None)
        if self._is_settled:
            note_reach(self.touched, pool.reach, NODE)
            note_reach(self.moved, pool.reach, NODE)

    # What there is

    def pools_of(self, node: int) -> list[PlacedPool]:
        """The pools that a node sees, in the order in which they are tried."""
        found = self._seen.get(node)
        if found is None:
            common = (each for each in self._common if node in each.pool.reach)
            found = sorted([*self._own.get(node, ()), *common], key=lambda each: each.pool.order)
            self._seen[node] = found
        return found

    @property
    def pools(self) -> Iterator[Pool]:
        """All pools, as each group of nodes sees them."""
        return (pool for group in self._groups.values() for pool in group.pools)

    @property
    def placed(self) -> Iterator[PlacedPool]:
        """All pools, with the rows of their devices; those that cannot be used have none."""
        return (placed for group in self._groups.values() for placed in group.placed)

    @property
    def wide_pools(self) -> Iterable[PlacedPool]:
        """Pools with devices that several nodes may use."""
        return self._wide

    def wide_pools_of(self, nodes: Sequence[int]) -> list[PlacedPool]:
        """As `wide_pools`, for some nodes alone."""
        return [each for each in self._wide if any(node in each.pool.reach for node in nodes)]

    def rows_on(self, nodes: Iterable[int]) -> RowNumbers:
        """The rows of the devices that one of these nodes alone may use."""
        found = [each.rows for node in nodes for each in self._own.get(node, ()) if not each.has_wide]
        mixed = [each.rows for node in nodes for each in self._own.get(node, ()) if each.has_wide]
        if mixed:
            rows = np.concatenate(mixed)
            found.append(rows[self._node[rows] >= 0])
        return np.concatenate(found) if found else np.arange(0)

    def rows_of_slice(self, number: int) -> range:
        """The rows of a slice that has some."""
        return self._ranges[number][1]

    def reaches(self, row: int, node: int) -> bool:
        """Whether a node that sees the pool may use the device."""
        number = self.slice_of[row]
        each = self.slices[number]
        if not each.spec.per_device_node_selection:
            return True
        reached = self._groups[_key(each)].reached[number]
        return node in reached[row - self._ranges[number][1].start]


def _is_local(each: ResourceSlice) -> bool:
    """Whether one node alone sees a slice."""
    return bool(each.spec.node_name) and not each.spec.shared_counters


def _key(each: ResourceSlice) -> PoolKey:
    return each.spec.driver, each.spec.pool.name
