"""The device table together with what is taken: which devices are free, and what is left of the counters of pools."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from gangline.dra.pools import Condition, Pool
from gangline.dra.table import DeviceTable
from gangline.dra.usage import DeviceId, Usage
from gangline.quantity import milli
from gangline.status import BoolColumn


class Standing:
    """How the devices of a table stand at one moment; neither the table nor the usage may change meanwhile."""

    def __init__(self, table: DeviceTable, usage: Usage) -> None:
        self.table = table
        self.usage = usage
        self._left: dict[int, dict[tuple[str, str], int]] = {}

    @cached_property
    def taken(self) -> BoolColumn:
        """By row: whether a claim has the device for itself."""
        return self._where(self.usage.taken)

    @cached_property
    def in_use(self) -> BoolColumn:
        """By row: whether shares consume capacities of the device."""
        return self._where(self.usage.consumed)

    def _where(self, devices: Iterable[DeviceId]) -> BoolColumn:
        found = np.zeros(len(self.table), dtype=np.bool_)
        index = self.table.index
        found[[row for device in devices for row in index.get(device, ())]] = True
        return found

    def consumed_before(self, row: int) -> dict[str, int]:
        """By capacity: the thousandths of a device that shares of allocated claims consume."""
        return self.usage.consumed.get(self.table.identity(row), {})

    @cached_property
    def exhausted(self) -> BoolColumn:
        """By row: whether the device consumes counters of a pool in which some counter is below zero."""
        found = np.zeros(len(self.table), dtype=np.bool_)
        if self.table.consumes.any():
            for pool in self.table.pools:
                if (
                    pool.condition is Condition.USABLE
                    and pool.counters
                    and min(self.left(pool).values(), default=0) < 0
                ):
                    found[self.table.rows_of(pool)] = True
            found &= self.table.consumes & ~(self.table.shareable & self.in_use)
        return found

    def left(self, pool: Pool) -> dict[tuple[str, str], int]:
        """By counter set and counter: the thousandths that allocated devices leave; negative if they have too much."""
        left = self._left.get(id(pool))
        if left is None:
            left = self._left[id(pool)] = {
                (each.name, name): milli(counter.value)
                for number in pool.counters
                for each in self.table.slices[number].spec.shared_counters
                for name, counter in each.counters.items()
            }
            usage = self.usage
            for number in (*pool.slices, *pool.others) if left else ():
                for row in self.table.rows_of_slice(number):
                    device = self.table.identity(row)
                    if device in usage.taken or device in usage.shared or device in usage.consumed:
                        for counter, amount in self.table.consumption(row).items():
                            if counter in left:
                                left[counter] -= amount
        return left
