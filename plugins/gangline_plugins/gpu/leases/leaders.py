"""Whether a leader still leads by its Lease of leader election: whoever wrote a hold and leads no more, has ended.

A leader stops writing before another one may take its Lease, so what it had begun is over soon after that.
"""

from __future__ import annotations

from gangline import Client, Clock, GanglineError, NotFound, resources
from gangline_plugins.gpu.leases.holds import number_of

FRESH = 5.0
"""Seconds for which an answer counts."""
_MOST = 64
"""Leases that are remembered; a hold may name any."""
_NOBODY = -1
"""The number of the leader where there is none."""


class Leaders:
    """The leaders by Leases, as they were a few seconds ago."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[str, tuple[float, int | None]] = {}
        """For each Lease, by NAMESPACE/NAME, when it was read and the number of its leader; None if unknown."""

    async def lead(self, term: str) -> bool:
        """Whether the leadership ELECTION/NUMBER goes on, or nobody can tell."""
        lease, number = term.rpartition("/")[0], number_of(term)
        now = self._clock.monotonic()
        known = self._known.get(lease)
        if known is None or now - known[0] >= FRESH:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[lease] = (now, await self._read(lease))
        return known[1] is None or number is None or known[1] == number

    async def _read(self, lease: str) -> int | None:
        namespace, _, name = lease.partition("/")
        try:
            found = await self._client.get(resources.LEASES, name, namespace=namespace)
        except NotFound:
            return _NOBODY
        except GanglineError:
            return None
        return (found.spec.lease_transitions or 0) if found.spec.holder_identity else _NOBODY
