"""Finds by plain numbers that nothing but too few devices can keep whole devices of one node from a want.

Most decisions judge one node again: the one on which the pod before was placed. There the arrays of `feasibility` hold
one number each and take ten times as long as plain numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.reasons import Why
from gangline_plugins.gpu.wants import Want


class Moments(NamedTuple):
    """Moments in seconds since the epoch."""

    oldest: float
    """Reports from before this moment are too old."""
    latest: float
    """Reports that were lost after this moment are awaited."""


class Clear(NamedTuple):
    """A node that only its devices can rule out. Devices that MIG divides into instances are left out."""

    present: int
    """The devices, as a mask."""
    usable: int
    """The present devices that are healthy, or that may be used although their health is unknown."""
    free: int
    """The usable devices that no pod has, so that they can be given as a whole."""
    is_known: bool
    """Whether the node reports its devices; if not, requests alone decide whether there are enough."""

    def lacks(self, count: int) -> Why:
        """Why there is no set of so many devices, if no links are required."""
        if self.present.bit_count() < count:
            return Why.COUNT
        if self.usable.bit_count() < count:
            return Why.HEALTH
        return Why.BUSY if self.free.bit_count() < count else Why.LINKS_BUSY


def clear(want: Want, row: int, columns: Columns, moments: Moments, allow_unknown: bool) -> Clear | None:
    """The devices of the node in this row for a want of whole devices; None if plain numbers cannot decide."""
    c, fabric = columns, want.fabric
    if want.exclusivity != "Exclusive" or want.selector:
        return None
    if fabric.rdma or fabric.min_ports or fabric.cu_file == "Required":
        return None
    if c.replicas.item(row) != 1 or c.mps.item(row) or c.mig_single.item(row):
        return None
    is_known, busy = c.known.item(row), c.busy.item(row)
    if is_known:
        if not allow_unknown and c.heartbeat.item(row) < moments.oldest:
            return None
    elif not want.implicit or c.lost.item(row) > moments.latest or busy & ~c.whole.item(row):
        return None
    unmixed = ~c.mig.item(row)
    usable = unmixed & (c.healthy.item(row) | (c.unknown.item(row) if allow_unknown else 0))
    return Clear(unmixed & c.present.item(row), usable, usable & ~busy, is_known)
