"""The ages of the reports of nodes: for how long none becomes too old, and none is awaited for long enough.

As long as that holds, and no report comes or goes, nobody has to look at the ages of all reports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn
from gangline_plugins.gpu.columns import Columns


class ReportAges(NamedTuple):
    """What a look at the ages of all reports has found."""

    heartbeats: NDArray[np.float64]
    """The column that was read; a larger one takes its place when nodes come."""
    oldest: float
    """The oldest heartbeat of a report that is not too old."""
    awaited: float
    """When the report was lost that has been awaited for longest."""

    @classmethod
    def of(cls, columns: Columns, is_stale: BoolColumn, is_awaited: BoolColumn) -> ReportAges:
        """The ages now, given which reports are too old and which are awaited."""
        fresh = np.min(columns.heartbeat, where=~is_stale, initial=np.inf)
        return cls(columns.heartbeat, float(fresh), float(np.min(columns.lost, where=is_awaited, initial=np.inf)))

    def hold(self, columns: Columns, oldest: float, latest: float) -> bool:
        """Whether later, too, the same reports are too old and the same are awaited, if none has come or gone.

        Reports from before `oldest` are too old; those that were lost after `latest` are awaited.
        """
        return columns.heartbeat is self.heartbeats and oldest <= self.oldest and latest < self.awaited
