"""The time for the scheduler; a simulation passes its own clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The clocks of the machine."""

    def monotonic(self) -> float:
        """Seconds that never decrease."""
        return time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def rfc3339(seconds: float, micros: bool = False) -> str:
    """Seconds since the epoch as Kubernetes writes them: metav1.Time, or MicroTime."""
    moment = datetime.fromtimestamp(seconds, UTC)  # isoformat takes a third of the time of strftime
    return f"{moment.isoformat(timespec='microseconds' if micros else 'seconds').removesuffix('+00:00')}Z"
