"""The time for which a process leads."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """The time for which one process leads."""

    name: str = ""
    """ELECTION/NUMBER: NAMESPACE/NAME of the Lease by which the process was elected, and a number that grows with each
    leader. "" without leader election.
    """
    settled: float = math.inf
    """The time after which no request of a former leader can arrive any more, in seconds of the clock's monotonic time.
    A former leader sends nothing new.
    """
