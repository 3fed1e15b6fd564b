"""Who leads by a Lease of leader election: whoever wrote a hold and leads no more, has died.

A leader stops writing before another one may take its Lease, so what it had begun is over soon after that.
"""

from __future__ import annotations

from gangline import Client, Clock, GanglineError, NotFound, resources
from gangline_plugins.gpu.leases.holds import scheduler_of

FRESH = 5.0
"""Seconds for which an answer counts."""
_MOST = 64
"""Leases that are remembered; a hold may name any."""


class Leaders:
    """The leaders by Leases, as they were a few seconds ago."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[str, tuple[float, str | None]] = {}
        """By NAMESPACE/NAME: when it was read, and the leader as holds name it; None if that cannot be known."""

    async def leads(self, lease: str, scheduler: str) -> bool:
        """Whether this scheduler is the leader by the Lease NAMESPACE/NAME, or nobody can tell."""
        now = self._clock.monotonic()
        known = self._known.get(lease)
        if known is None or now - known[0] >= FRESH:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[lease] = (now, await self._read(lease))
        return known[1] is None or known[1] == scheduler

    async def _read(self, lease: str) -> str | None:
        namespace, _, name = lease.partition("/")
        try:
            found = await self._client.get(resources.LEASES, name, namespace=namespace)
        except NotFound:
            return ""
        except GanglineError:
            return None
        holder = found.spec.holder_identity
        return scheduler_of(holder) if holder else ""
