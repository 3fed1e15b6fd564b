"""The time for the scheduler; a simulation passes its own clock."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from functools import lru_cache


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
    part, whole = math.modf(seconds)
    second, micro = divmod(int(whole) * 1_000_000 + round(part * 1e6), 1_000_000)
    return f"{_second(second)}.{micro:06}Z" if micros else f"{_second(second)}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """Whole seconds; many events fall into one."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")
