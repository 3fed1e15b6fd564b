"""Pools in their place: as some nodes see them, with the rows of their devices in the table."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.dra.pools import Pool, Reach
from gangline.dra.rows import RowNumbers
from gangline.state.changes import Changes


@dataclass(slots=True, eq=False, weakref_slot=True)
class PlacedPool:
    """A pool, as some nodes see it, and the rows of its devices."""

    pool: Pool
    rows: RowNumbers
    """In the order in which they are tried."""
    has_wide: bool
    """Whether some of the devices are for several nodes."""
    selects_devices: bool
    """Whether devices select nodes one by one."""


def note_reach(log: Changes, reach: Reach, kind: int) -> None:
    """Note a change for all nodes that a pool is for."""
    if reach.is_inverted:
        log.note_all(kind)
    else:
        for row in reach.rows:
            log.note(row, kind)
