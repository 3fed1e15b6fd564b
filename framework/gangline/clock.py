"""Time as the scheduler asks for it; a simulation hands in its own."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def rfc3339(seconds: float, micros: bool = False) -> str:
    """Seconds since the epoch as Kubernetes writes them: metav1.Time, or MicroTime."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micros else "%Y-%m-%dT%H:%M:%SZ")
