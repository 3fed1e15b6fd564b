"""How many members with a claim fit on each node: no request tells of their GPUs, so the framework cannot count them.

It is never less than what really fits: what a claim wants beyond a number of devices is left to the filters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gangline import NodeView, Role
from gangline.wire import CLAIM
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.wants import Want
from gangline_plugins.leaf_spine.layout import Ints


def counted(role: Role, nodes: NodeView, table: DeviceTable) -> Role:
    """The role with no more members on a node than there are devices for."""
    pod = role.pods[0]
    want = table.wants.of(pod) if CLAIM in pod.annotations else None
    if not isinstance(want, Want):
        return role
    holds = _places(want, table.columns, nodes) // want.count
    return replace(role, capacity=np.minimum(role.capacity, np.maximum(holds, 1)))  # the filters let one in


def _places(want: Want, columns: Columns, nodes: NodeView) -> Ints:
    """For each node how often one device, or one instance, of the claim could be handed out."""
    index = nodes.index
    if want.exclusivity == "MIG":
        return columns.profile(want.profile)[1][index].astype(np.int64)
    usable = (columns.healthy | columns.unknown) & ~columns.mig
    if want.exclusivity == "Exclusive":
        return np.bitwise_count(usable[index] & ~columns.busy[index]).astype(np.int64)
    each = (usable & ~columns.whole)[index, None] >> np.arange(MOST_DEVICES, dtype=np.uint32) & 1
    shares = columns.milli[index].astype(np.int64) // max(want.milli, 1)
    if want.memory_mib:
        shares = np.minimum(shares, columns.memory[index] // want.memory_mib)
    places: Ints = (shares * each).sum(axis=1)
    return places
