"""An upper bound on how many pods with the same claim fit on each node; links and policies are not considered."""

from __future__ import annotations

import numpy as np

from gangline import Int64Column, NodeView
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.node_devices import WHOLE
from gangline_plugins.gpu.wants import Want

_PLENTY = 2**31


def count(table: DeviceTable, want: Want, nodes: NodeView) -> Int64Column | None:
    """How many such pods the free devices, shares or instances of each node suffice for; None if requests count
    them.
    """
    if want.implicit:
        return None
    c, index = table.columns, nodes.index
    if want.exclusivity == "MIG":
        _, free = c.profile(want.profile)
        return free[index].astype(np.int64) // want.count
    usable = (c.healthy | c.unknown)[index] & ~c.mig[index]
    if want.exclusivity == "Exclusive":
        return np.bitwise_count(usable & ~c.busy[index]).astype(np.int64) // want.count
    roomy = ((usable & ~c.whole[index])[:, None] >> np.arange(c.milli.shape[1], dtype=np.uint32)) & 1
    shares = _shares(c.milli[index], want.milli)
    if want.memory_mib:
        shares = np.minimum(shares, _shares(c.memory[index], want.memory_mib))
    shares = np.minimum(shares, WHOLE)
    return np.asarray((shares * roomy).sum(axis=1, dtype=np.int64) // want.count)


def _shares(free: np.ndarray, each: int) -> Int64Column:
    """How many shares of a given size each device has free."""
    return free.astype(np.int64) // each if each else np.full(free.shape, _PLENTY, dtype=np.int64)
