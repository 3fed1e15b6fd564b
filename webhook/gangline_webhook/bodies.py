"""Reads the bodies of requests within limits: on the size of one body, on the size of all bodies together, and on time.

Rules
- A small body is always read: only the bytes beyond SMALL count in the budget that all requests share.
- A request that is slow or incomplete gives its share of the budget back after PATIENCE at the latest.
- A body of the right size can still grow a hundredfold when it is decoded, so its parts are counted first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gangline.errors import GanglineError

LARGEST = 8 << 20
"""Bytes of a review: two objects of the largest size that the API server stores, and as much again for its escapes."""
SMALL = 32 << 10
"""Bytes; nearly every review is smaller."""
BUDGET = 24 << 20
"""Bytes of all bodies that are being read or reviewed, beyond the first SMALL of each."""
PATIENCE = 5.0
"""Seconds for a whole body; the API server waits no longer either."""
MOST_OBJECTS = 50_000
"""JSON objects in a review; a pod of a hundred containers has some thousands."""
MOST_ELEMENTS = 500_000
"""Commas in a review; an annotation may have 262,144."""


class Refused(GanglineError):
    """A body was not read to its end; ``status`` is the HTTP status, ``start`` the bytes that were read."""

    def __init__(self, status: int, why: str, start: bytes = b"") -> None:
        super().__init__(status, why, start)
        self.status = status
        self.why = why
        self.start = start

    def __str__(self) -> str:
        return self.why


class Bodies:
    """The bodies of all requests of one server."""

    def __init__(self, largest: int = LARGEST, budget: int = BUDGET, patience: float = PATIENCE) -> None:
        self._largest = largest
        self._free = budget
        self._patience = patience

    @asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytearray]:
        """The body of a request; it counts in the budget until the block ends. Raises Refused."""
        body = bytearray()
        taken = 0
        try:
            try:
                async with asyncio.timeout(self._patience):
                    async for chunk in request.content.iter_any():
                        body += chunk
                        more = max(len(body) - SMALL - taken, 0)
                        self._check(request, body, more)
                        self._free -= more
                        taken += more
            except TimeoutError:
                raise Refused(408, f"the request was not complete after {self._patience:g} s") from None
            except web.RequestPayloadError as error:
                raise Refused(400, f"the body cannot be read: {error}") from None
            yield body
        finally:
            self._free += taken

    def _check(self, request: web.Request, body: bytearray, more: int) -> None:
        """Raises Refused if this body, or all bodies together, are too large."""
        if max(len(body), request.content_length or 0) > self._largest:
            raise Refused(413, f"a review may have {self._largest} bytes", bytes(body[:SMALL]))
        if more > self._free:
            raise Refused(503, "too many large reviews at once")


def too_many_parts(body: bytearray) -> str:
    """Why a body must not be decoded; empty if it may be decoded."""
    for mark, most, what in ((b"{", MOST_OBJECTS, "objects"), (b",", MOST_ELEMENTS, "elements")):
        if (found := body.count(mark)) > most:
            return f"it has {found} {what}, at most {most} are read"
    return ""
