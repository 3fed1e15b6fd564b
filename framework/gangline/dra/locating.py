"""The devices that nodes have for themselves, with the place of each device's node among those that are asked about."""

from __future__ import annotations

import numpy as np

from gangline.dra.rows import RowNumbers
from gangline.dra.table import SliceTable

_SHARE = 8
"""If more than an eighth of the nodes is asked about, all devices are looked at: to collect some would take longer."""


def located(table: SliceTable, size: int, nodes: RowNumbers | None = None) -> tuple[RowNumbers | slice, RowNumbers]:
    """Rows of the table, among them all devices that nodes in these rows have for themselves, and by device the place.

    The place is negative for a device of another node or of several nodes. Without `nodes` it is the row of the node;
    there are `size` rows of nodes.
    """
    if nodes is None:
        return slice(0, len(table)), table.node
    if len(nodes) > 1 + size // _SHARE:
        where = np.full(size + 2, -1, dtype=np.int64)  # SEVERAL and NOWHERE are the last two
        where[nodes] = np.arange(len(nodes))
        return slice(0, len(table)), where[table.node]
    rows = table.rows_on(nodes.tolist())
    if len(nodes) == 1:
        return rows, np.zeros(len(rows), dtype=np.int64)
    where = np.zeros(size, dtype=np.int64)
    where[nodes] = np.arange(len(nodes))
    return rows, where[table.node[rows]]
