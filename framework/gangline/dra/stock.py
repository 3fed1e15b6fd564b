"""By node: how many devices a request can mean, and how many of these devices claims have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.candidates import MEANT, Candidates
from gangline.dra.layout import DeviceLayout
from gangline.dra.rows import RowNumbers


class DeviceStock(NamedTuple):
    """Numbers of devices, one for each node."""

    total: NDArray[np.int64]
    """Devices that the request can mean, also those with taints."""
    given: NDArray[np.int64]
    """The devices among them of which a claim has the whole or a share."""


def stock(candidates: Candidates, layout: DeviceLayout, nodes: RowNumbers) -> DeviceStock:
    """The devices of these nodes for the first request of a question."""
    rows, place = layout.of(nodes)[:2]
    meant = candidates.flags(0)[rows] & MEANT > 0
    for at in np.flatnonzero(layout.is_hard(nodes)[place] & meant).tolist():  # devices may select nodes one by one
        meant[at] = candidates.table.reaches(int(rows[at]), int(nodes[place[at]]))
    given = meant & (candidates.standing.states[rows] > 0)
    size = len(nodes)
    return DeviceStock(np.bincount(place[meant], minlength=size), np.bincount(place[given], minlength=size))
