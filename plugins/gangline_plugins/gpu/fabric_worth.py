"""How well the fabric of nodes meets what a claim prefers: RDMA ports and adapters, and cuFile."""

from __future__ import annotations

import numpy as np

from gangline import NodeView, ScoreColumn
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.wants import FabricWant

_PLENTY_OF_PORTS = 8.0
"""With this many ports more than asked for, a node gets the full score for ports."""


def fabric_worth(fabric: FabricWant, table: DeviceTable, nodes: NodeView) -> ScoreColumn:
    """How well each node's fabric meets the preferences, 0 to 1."""
    c, index = table.columns, nodes.index
    parts: list[ScoreColumn] = []
    if fabric.rdma or fabric.min_ports:
        spare = c.ports[index] - max(fabric.min_ports, 1)
        parts.append(np.clip(spare / _PLENTY_OF_PORTS, 0.0, 1.0))
    if fabric.preferred_hcas:
        wanted = set(fabric.preferred_hcas)
        shares = np.array([len(wanted & names) / len(wanted) for names in table.hca_sets])
        parts.append(shares[c.hcas[index]])
    if fabric.cu_file == "Preferred":
        parts.append(c.cu_file[index].astype(np.float64))
    return np.mean(parts, axis=0)
