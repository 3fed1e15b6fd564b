"""The free amounts of each node: milli-CPU, and thousandths of each device, from the device table or from node
columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gangline import NodeView, custom_resources, requests
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.node_devices import WHOLE

Amounts = NDArray[np.int64]
"""One value per node, or one row of values."""
_PLACES = np.arange(MOST_DEVICES)
_BITS = np.uint32(1) << np.arange(MOST_DEVICES, dtype=np.uint32)


def free_cpu(nodes: NodeView) -> Amounts:
    """Free milli-CPU of each node."""
    return nodes.allocatable(requests.CPU) - nodes.requested(requests.CPU)


def all_devices(nodes: NodeView, columns: Columns) -> Amounts:
    """Thousandths of all devices that can be allocated, free or not."""
    index = nodes.index
    known = np.bitwise_count(columns.healthy[index] & ~columns.mig[index])
    return WHOLE * np.where(
        columns.known[index], known, np.minimum(nodes.allocatable(custom_resources.GPU), MOST_DEVICES)
    )


def free_devices(nodes: NodeView, columns: Columns) -> Amounts:
    """Free thousandths of each device, nodes x 16; 0 without a device, or for one that cannot be allocated.

    A device with a pod on it has at most 999, because it is no longer available as a whole. If no agent reports, as
    many devices as `nvidia.com/gpu` has free count as whole ones, starting with the first.
    """
    index = nodes.index
    usable = columns.healthy[index] & ~columns.mig[index] & ~columns.whole[index]
    free = columns.milli[index].astype(np.int64)
    np.minimum(free, WHOLE - 1, out=free, where=(columns.busy[index][:, None] & _BITS) != 0)
    free *= (usable[:, None] & _BITS) != 0
    unknown = ~columns.known[index]
    if unknown.any():
        left = nodes.allocatable(custom_resources.GPU)[unknown] - nodes.requested(custom_resources.GPU)[unknown]
        free[unknown] = np.where(left[:, None] > _PLACES, WHOLE, 0)
    return free
