"""Pools as some nodes see them, with the rows of their devices in the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gangline.dra.pools import Pool, PoolCondition, Reach
from gangline.dra.rows import RowNumbers
from gangline.state.changes import Changes
from gangline.status import BoolColumn


@dataclass(slots=True, eq=False, weakref_slot=True)
class PlacedPool:
    """A pool, as some nodes see it, and the rows of its devices."""

    pool: Pool
    rows: RowNumbers
    """The rows of the devices, in the order in which the devices are tried."""
    has_wide: bool
    """Whether several nodes may use some of the devices."""
    selects_devices: bool
    """Whether devices select nodes one by one."""


class PlacedPools:
    """All pools in their places, and which of them each node sees."""

    def __init__(self) -> None:
        self.with_slice: dict[int, list[PlacedPool]] = {}
        """By slice: the pools that offer its devices to some nodes, or know them as those of other nodes."""
        self.wide: dict[PlacedPool, None] = {}
        """Pools with devices that several nodes may use."""
        self.unusable: dict[PlacedPool, None] = {}
        """Incomplete and invalid pools."""
        self._invalid: dict[PlacedPool, None] = {}
        """Invalid pools."""
        self._see_invalid: BoolColumn | None = None
        """What `see_invalid` has found."""
        self._own: dict[int, list[PlacedPool]] = {}
        """By row of a node: the pools as this node alone sees them."""
        self._common: dict[PlacedPool, None] = {}
        """The other pools."""
        self._seen: dict[int, list[PlacedPool]] = {}
        """By row of a node: what `seen_by` has found."""

    def add(self, placed: PlacedPool) -> None:
        """A pool came."""
        pool = placed.pool
        if placed.has_wide:
            self.wide[placed] = None
        if pool.condition is not PoolCondition.USABLE:
            self.unusable[placed] = None
        if pool.condition is PoolCondition.INVALID:
            self._invalid[placed] = None
            self._see_invalid = None
        if pool.reach.is_inverted or len(pool.reach.rows) > 1:
            self._common[placed] = None
        else:
            for node in pool.reach.rows:
                self._own.setdefault(node, []).append(placed)
        for number in (*pool.slices, *pool.others):
            self.with_slice.setdefault(number, []).append(placed)
        self._forget(pool.reach)

    def remove(self, placed: PlacedPool) -> None:
        """A pool went."""
        pool = placed.pool
        self.wide.pop(placed, None)
        self.unusable.pop(placed, None)
        if placed in self._invalid:
            del self._invalid[placed]
            self._see_invalid = None
        if placed in self._common:
            del self._common[placed]
        else:
            for node in pool.reach.rows:
                self._own[node].remove(placed)
                if not self._own[node]:
                    del self._own[node]
        for number in (*pool.slices, *pool.others):
            self.with_slice[number].remove(placed)
            if not self.with_slice[number]:
                del self.with_slice[number]
        self._forget(pool.reach)

    def _forget(self, reach: Reach) -> None:
        """Forget which pools these nodes see: a pool that they see has changed."""
        if reach.is_inverted:
            self._seen.clear()
        else:
            for node in reach.rows:
                self._seen.pop(node, None)

    def seen_by(self, node: int) -> list[PlacedPool]:
        """The pools that a node sees, in the order in which they are tried."""
        found = self._seen.get(node)
        if found is None:
            common = (each for each in self._common if node in each.pool.reach)
            found = sorted([*self.own(node), *common], key=lambda each: each.pool.order)
            self._seen[node] = found
        return found

    def see_invalid(self, size: int) -> BoolColumn | None:
        """For the first `size` nodes: whether a pool is invalid as the node sees it. None if no pool is invalid."""
        if not self._invalid:
            return None
        if self._see_invalid is None or len(self._see_invalid) != size:
            masks = [each.pool.reach.mask(size) for each in self._invalid]
            self._see_invalid = np.logical_or.reduce(masks)
        return self._see_invalid

    def own(self, node: int) -> Sequence[PlacedPool]:
        """The pools as this node alone sees them."""
        return self._own.get(node, ())


def note_reach(log: Changes, reach: Reach, kind: int) -> None:
    """Note a change for all nodes of a pool."""
    if reach.is_inverted:
        log.note_all(kind)
    else:
        for row in reach.rows:
            log.note(row, kind)
