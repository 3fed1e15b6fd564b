"""The time for which a process leads."""

from __future__ import annotations

import math
from dataclasses import dataclass

LANDING = 60.0
"""Seconds after which a request without an answer is done, or never will be: API servers end each request by then."""


@dataclass(frozen=True, slots=True)
class Term:
    """The time for which one process leads."""

    name: str = ""
    """ELECTION/NUMBER: NAMESPACE/NAME of the Lease by which the process was elected, and a number that grows with each
    leader. "" without leader election.
    """
    settled: float = math.inf
    """From when on nothing can arrive any more that former leaders have sent, in seconds of the clock's monotonic time.
    A former leader sends nothing more.
    """
