"""The free amounts of each node: milli-CPU, and thousandths of each device, from the device table or from node
columns, or from what drivers offer to claims.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gangline import NodeView, custom_resources, requests
from gangline_plugins.anti_fragmentation.offered import OfferedGpus
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.node_devices import WHOLE

Amounts = NDArray[np.int64]
"""One value per node, or one row of values."""
_PLACES = np.arange(MOST_DEVICES)
_BITS = np.uint32(1) << np.arange(MOST_DEVICES, dtype=np.uint32)
_BIT_LIST: list[int] = _BITS.tolist()


def free_cpu(nodes: NodeView) -> Amounts:
    """Free milli-CPU of each node."""
    return nodes.free(requests.CPU)


def free_cpu_of_one(nodes: NodeView) -> int:
    """As `free_cpu`, for the only node of the view."""
    return _left_of_one(nodes, requests.CPU)


def _left_of_one(nodes: NodeView, resource: str) -> int:
    return nodes.free_of_one((resource,))[0]


def all_of_row(nodes: NodeView, row: int, columns: Columns) -> int:
    """As `all_devices`, for the only node of the view, which has this row and no GPUs of drivers."""
    if columns.known.item(row):
        return WHOLE * (columns.healthy.item(row) & ~columns.mig.item(row)).bit_count()
    (advertised,), _ = nodes.amounts_of_one((custom_resources.GPU,))
    return WHOLE * min(advertised, MOST_DEVICES)


def all_devices(nodes: NodeView, columns: Columns, offered: OfferedGpus | None = None) -> Amounts:
    """Thousandths of all devices that can be allocated, free or not."""
    index = nodes.index
    advertised = nodes.allocatable(custom_resources.GPU)
    known = np.bitwise_count(columns.healthy[index] & ~columns.mig[index])
    found: Amounts = WHOLE * np.where(columns.known[index], known, np.minimum(advertised, MOST_DEVICES))
    if offered is not None and not offered.is_empty:
        total, _ = offered.gpus(nodes)
        found = np.where((total > 0) & (advertised == 0), total, found)
    return found


def free_devices(nodes: NodeView, columns: Columns, offered: OfferedGpus | None = None) -> Amounts:
    """Free thousandths of each device, nodes x 16; 0 without a device, or for one that cannot be allocated.

    A device with a pod on it has at most 999, because it is no longer available as a whole. If no agent reports, as
    many devices as `nvidia.com/gpu` has free count as whole ones, starting with the first. GPUs that a driver offers
    count where no device plugin advertises any.
    """
    index = nodes.index
    usable = columns.healthy[index] & ~columns.mig[index] & ~columns.whole[index]
    free = columns.milli[index].astype(np.int64)
    np.minimum(free, WHOLE - 1, out=free, where=(columns.busy[index][:, None] & _BITS) != 0)
    free *= (usable[:, None] & _BITS) != 0
    unknown = ~columns.known[index]
    if np.count_nonzero(unknown):
        left = nodes.free(custom_resources.GPU)[unknown]
        free[unknown] = np.where(left[:, None] > _PLACES, WHOLE, 0)
    if offered is not None and not offered.is_empty:
        total, of_drivers = offered.gpus(nodes)
        chosen = (total > 0) & (nodes.allocatable(custom_resources.GPU) == 0)
        free[chosen] = of_drivers[chosen]
    return free


def free_of_row(nodes: NodeView, row: int, columns: Columns) -> list[int]:
    """As `free_devices`, for the only node of the view, which has this row and no GPUs of drivers."""
    if not columns.known[row]:
        left = _left_of_one(nodes, custom_resources.GPU)
        whole = min(max(left, 0), MOST_DEVICES)
        return [WHOLE] * whole + [0] * (MOST_DEVICES - whole)
    usable = int(columns.healthy[row]) & ~int(columns.mig[row]) & ~int(columns.whole[row])
    busy, number = int(columns.busy[row]), usable.bit_length()
    free = [
        (min(milli, WHOLE - 1) if busy & bit else milli) if usable & bit else 0
        for bit, milli in zip(_BIT_LIST[:number], columns.milli[row, :number].tolist(), strict=True)
    ]
    return free + [0] * (MOST_DEVICES - number)
