"""The free room in one domain by arithmetic. Removing or returning a unit takes microseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangline import Rows
from gangline_plugins.gang_preemption.demand import GangDemand
from gangline_plugins.gang_preemption.occupants import Occupants, Removal


class Room:
    """The free amounts on the rows of a domain, as a `Ground`."""

    def __init__(self, demand: GangDemand, occupants: Occupants, rows: Rows) -> None:
        self._demand = demand
        self._rows = rows
        self._place = np.full(demand.size, -1, dtype=np.intp)
        self._place[rows] = np.arange(len(rows))
        self._rows_of = occupants.rows
        self._free = demand.free[:, rows]
        self._gone = demand.touched[rows].astype(np.int64)
        self._holds = demand.holds(self._free, self._gone > 0, rows)

    def remove(self, units: Sequence[Removal]) -> None:
        """Remove these units."""
        self._change(units, 1)

    def put_back(self, units: Sequence[Removal]) -> None:
        """Return these units."""
        self._change(units, -1)

    def fits(self) -> bool:
        """Whether the group may fit: False is certain, True is not. Raises DeadlineExceeded."""
        self._demand.deadline.check()
        return bool(self._demand.is_met(self._holds.sum(axis=1, keepdims=True))[0])

    @property
    def missing(self) -> int:
        """How many members have no place."""
        return int(self._demand.missing(self._holds.sum(axis=1, keepdims=True))[0])

    def _change(self, units: Sequence[Removal], sign: int) -> None:
        slots = units[0].slots if len(units) == 1 else np.concatenate([unit.slots for unit in units])
        places = self._place[self._rows_of[slots]]
        amounts = sign * self._demand.amounts[:, slots]
        if len(places) == 1:
            self._free[:, places] += amounts
        else:
            for free, change in zip(self._free, amounts, strict=True):
                np.add.at(free, places, change)
        np.add.at(self._gone, places, sign)
        self._holds[:, places] = self._demand.holds(self._free[:, places], self._gone[places] > 0, self._rows[places])
