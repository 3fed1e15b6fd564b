"""How many devices nodes have for certain claims now, and how many more when other claims end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gangline.dra.standing import Standing
from gangline.model.resource_claims import ResourceClaimAllocation
from gangline.status import BoolColumn


class Supply:
    """The devices that some claims may be given, as they are at one moment.

    Each of the devices can be used by one node and one claim only.
    """

    def __init__(self, standing: Standing, usable: BoolColumn, size: int) -> None:
        """`usable` says for each row of the table whether the claims may be given the device; `size` counts nodes."""
        self._table = standing.table
        node = self._table.node
        self._usable = usable & (node >= 0) & (node < size)
        self.free: NDArray[np.int64] = np.bincount(node[self._usable & ~standing.taken], minlength=size)
        """By row of the nodes: how many of the devices no claim has."""

    def held(self, allocation: ResourceClaimAllocation, node: int) -> int:
        """How many of the devices on the node in this row become free when a claim gives its allocation back."""
        return sum(
            1
            for each in allocation.devices.results
            if not each.admin_access
            for row in self._table.index.get((each.driver, each.pool, each.device), ())
            if self._usable[row] and self._table.node_of(row) == node
        )
