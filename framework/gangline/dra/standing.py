"""The slice table together with the devices that claims have: which are free, and how much of each counter is left.

A claim that takes devices, or gives them back, changes only the rows of these devices.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from gangline.dra.placed import PlacedPool, note_reach
from gangline.dra.reading import CONSUMES, SHAREABLE, consumption
from gangline.dra.rows import RowColumn, RowNumbers
from gangline.dra.table import SEVERAL, SliceTable
from gangline.dra.usage import DeviceId, Usage
from gangline.model.resource_claims import AllocatedDevice
from gangline.quantity import milli
from gangline.state.changes import OWN, PODS, Changes
from gangline.status import BoolColumn

TAKEN = 1
"""A state: a claim has the device for itself, or somebody without a claim has it."""
IN_USE = 2
"""A state: shares consume capacities of the device."""
_MANY = 8
"""With at least so many devices, the nodes that see a change are noted together."""
_MOST_AMOUNTS = 65_536
"""Different amounts that shares consume of a device; with more, they are numbered anew."""
Left = dict[tuple[str, str], int]
"""By names of counter set and counter: the thousandths that are left."""


class Standing:
    """Columns over a table about the devices that claims have. Only `take`, `give` and `close` change the usage, so
    the columns and the usage always agree.
    """

    def __init__(self, table: SliceTable, usage: Usage) -> None:
        self.table = table
        self.usage = usage
        self._left: WeakKeyDictionary[PlacedPool, Left] = WeakKeyDictionary()
        self._has_left = False
        """Whether `left` was ever called; before, changes of counters need not be followed."""
        self._states: RowColumn[np.uint8] = RowColumn(
            table.rows, np.uint8, lambda rows: [self._state(table.ids[row]) for row in rows.tolist()]
        )

        self._amounts: dict[Hashable, int] = {}
        """By capacities and amounts that shares consume: a number."""
        self._consumed: RowColumn[np.int32] = RowColumn(
            table.rows, np.int32, lambda rows: [self._number(table.ids[row]) for row in rows.tolist()]
        )

    def _number(self, device: DeviceId) -> int:
        consumed = self.usage.consumed.get(device)
        return self._amounts.setdefault(tuple(sorted(consumed.items())), len(self._amounts) + 1) if consumed else 0

    def _state(self, device: DeviceId) -> int:
        usage = self.usage
        return TAKEN * (device in usage.taken or device in usage.closed) | IN_USE * (device in usage.consumed)

    @property
    def states(self) -> NDArray[np.uint8]:
        """By row: the states TAKEN and IN_USE of the device, as flags; 0 for a free device."""
        return self._states.values

    @property
    def consumed(self) -> NDArray[np.int32]:
        """By row: a number for the amounts that shares consume of the device; equal numbers mean equal amounts."""
        return self._consumed.values

    @property
    def taken(self) -> BoolColumn:
        """By row: whether a claim has the device for itself."""
        return self.states & TAKEN > 0

    def is_taken(self, rows: RowNumbers | slice) -> BoolColumn:
        """For each of the given rows: whether a claim has the device for itself."""
        return self.states[rows] & TAKEN > 0

    # What claims take and give back

    def take(self, results: Sequence[AllocatedDevice], log: Changes) -> None:
        """A claim has these devices now. The nodes that see the change are noted in `log` and in `table.touched`."""
        self._count(results, 1, log)

    def give(self, results: Sequence[AllocatedDevice], log: Changes) -> None:
        """Undo `take`."""
        self._count(results, -1, log)

    def _count(self, results: Sequence[AllocatedDevice], sign: int, log: Changes) -> None:
        usage = self.usage
        if len(self._amounts) > _MOST_AMOUNTS:
            self._amounts.clear()
            self._consumed.forget()
        before = {device: usage.is_used(device) for device in _devices(results)} if self._has_left else {}
        changed = usage.add(results) if sign > 0 else usage.remove(results)
        if len(changed) < _MANY or not self._note_own(changed, log):
            for device in changed:
                self._note(device, log)
        for device, was_used in before.items():
            if was_used != usage.is_used(device):
                self._counters_changed(device, -1 if was_used else 1)

    def close(self, device: DeviceId, sign: int, log: Changes) -> None:
        """Somebody without a claim has the device now (`sign` is 1), or no longer has it (-1); `log` as in `take`."""
        self.usage.close(device, sign)
        self._note(device, log)

    def _note(self, device: DeviceId, log: Changes) -> None:
        """The state of a device has changed, or what shares consume of it."""
        table = self.table
        for row in table.index.get(device, ()):
            self._states[row] = self._state(device)
            self._consumed[row] = self._number(device)
            node = table.node_of(row)
            if node >= 0 and not table.traits_of(row) & CONSUMES:
                table.touched.note_valid(node, PODS)
                log.note_valid(node, OWN)
                continue
            for placed in table.placed_with.get(table.slice_of[row], ()):
                note_reach(table.touched, placed.pool.reach, PODS)
                note_reach(log, placed.pool.reach, PODS)

    def _note_own(self, devices: Sequence[DeviceId], log: Changes) -> bool:
        """As `_note` for devices of one node each that consume no counters; False, and nothing done, for others."""
        table = self.table
        found = [(row, device) for device in devices for row in table.index.get(device, ())]
        rows = np.array([row for row, _ in found], dtype=np.intp)
        nodes = table.node[rows]
        if (nodes < 0).any() or (table.traits[rows] & CONSUMES).any():
            return False
        for row, device in found:
            self._states[row] = self._state(device)
            self._consumed[row] = self._number(device)
        table.touched.note_all_valid(nodes.tolist(), PODS)
        log.note_all_valid(nodes.tolist(), OWN)
        return True

    def _counters_changed(self, device: DeviceId, sign: int) -> None:
        """A device that no claim used is used now (1), or no claim uses it any more (-1): adjust its counters."""
        table = self.table
        for row in table.index.get(device, ()):
            if not table.traits_of(row) & CONSUMES:
                continue
            for placed in table.placed_with.get(table.slice_of[row], ()):
                left = self._left.get(placed)
                for counter, amount in consumption(table.devices[row]).items() if left is not None else ():
                    if left is not None and counter in left:
                        left[counter] -= sign * amount

    # What is left

    def consumed_before(self, row: int) -> dict[str, int]:
        """By capacity: the thousandths that the shares of allocated claims consume of the device in this row."""
        return self.usage.consumed.get(self.table.ids[row], {})

    def is_exhausted(self, row: int, placed: PlacedPool) -> bool:
        """Whether the device cannot be given because some counter of its pool is overdrawn (below zero).

        A device that consumes no counters, or of which a share is in use already, is not exhausted.
        """
        traits = self.table.traits_of(row)
        if not traits & CONSUMES or (traits & SHAREABLE and self.states.item(row) & IN_USE):
            return False
        return min(self.left(placed).values(), default=0) < 0

    def left(self, placed: PlacedPool) -> Left:
        """The thousandths that allocated devices leave of each counter; negative if they consume more than there is."""
        left = self._left.get(placed)
        if left is None:
            table, pool = self.table, placed.pool
            self._has_left = True
            left = self._left[placed] = {
                (each.name, name): milli(counter.value)
                for number in pool.counters
                for each in table.slices[number].spec.shared_counters
                for name, counter in each.counters.items()
            }
            for number in (*pool.slices, *pool.others) if left else ():
                for row in table.rows_of_slice(number):
                    if self.usage.is_used(table.ids[row]):
                        for counter, amount in consumption(table.devices[row]).items():
                            if counter in left:
                                left[counter] -= amount
        return left

    @property
    def has_several_users(self) -> bool:
        """Whether several claims, or several nodes, may use some device."""
        table = self.table
        return bool((table.traits & SHAREABLE).any() or (table.node == SEVERAL).any())

    def free(self, size: int) -> NDArray[np.int64]:
        """By node: how many devices only this node may use and no claim has; for the first `size` nodes."""
        node = self.table.node
        free = node[(node >= 0) & ~self.taken]
        return np.bincount(free, minlength=size)[:size]


def _devices(results: Sequence[AllocatedDevice]) -> list[DeviceId]:
    return [(each.driver, each.pool, each.device) for each in results if not each.admin_access]
