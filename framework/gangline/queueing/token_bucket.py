"""How often something costly may be done."""

from __future__ import annotations


class TokenBucket:
    """Allows `burst` uses at once, and `per_second` uses a second on the mean: a token bucket.

    The caller passes the time in seconds, which never goes back.
    """

    __slots__ = ("_burst", "_left", "_per_second", "_since")

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left = self._burst
        self._since = 0.0

    def take(self, now: float) -> bool:
        """Whether it may be done once now; if so, it counts as done."""
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
