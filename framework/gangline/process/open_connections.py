"""The open connections of a listener: how many there are, which of them wait for a request, and which one has to go.

There is always room for one more connection: if there are too many, the connection is closed that has been without a
request longest or, if all have a request, the one with the oldest request. So a client that opens many connections
loses its own.
"""

from __future__ import annotations

import asyncio
from asyncio import BaseTransport, TimerHandle, Transport
from typing import cast


class OpenConnections:
    """``most`` connections at a time; each has ``head`` seconds for the head of its first request."""

    def __init__(self, most: int, head: float) -> None:
        self._most, self._head = most, head
        self._silent: dict[BaseTransport, TimerHandle | None] = {}
        """Connections without a request, each with its timer; first the connection that has waited longest for one."""
        self._busy: dict[BaseTransport, None] = {}
        """Connections with a request, the oldest request first."""

    def __len__(self) -> int:
        return len(self._silent) + len(self._busy)

    def made(self, transport: Transport) -> None:
        """A connection is open, and its TLS handshake is done."""
        if len(self) >= self._most:
            oldest = cast(Transport, next(iter(self._silent or self._busy)))
            self.lost(oldest)
            oldest.abort()
        self._silent[transport] = asyncio.get_running_loop().call_later(self._head, transport.abort)

    def asks(self, transport: BaseTransport) -> None:
        """A connection has a request now."""
        if self.lost(transport):
            self._busy[transport] = None

    def answered(self, transport: BaseTransport) -> None:
        """A connection has no request now; until its next request aiohttp has the time."""
        if self.lost(transport):
            self._silent[transport] = None

    def lost(self, transport: BaseTransport) -> bool:
        """A connection is closed; returns whether it was open."""
        is_open = transport in self._silent or transport in self._busy
        self._busy.pop(transport, None)
        if timer := self._silent.pop(transport, None):
            timer.cancel()
        return is_open

    def stop(self) -> None:
        """No timer is needed any more."""
        for timer in self._silent.values():
            if timer is not None:
                timer.cancel()
