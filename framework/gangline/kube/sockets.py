"""Options of the sockets to an API server: when a dead server is noticed, and for how long data may be on the way."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

KEEP_ALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3))
"""Options by which an idle connection notices within a minute that the other end is gone."""
UNANSWERED = 20.0
"""Seconds after which the kernel gives up a connection whose other end has not acknowledged data. API servers work on a
write for 34 s at most, so a write is over well within `LANDING`.
"""
NO_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: a close is a reset, and the kernel drops what it has not sent."""


def bound(transport: asyncio.BaseTransport) -> None:
    """Set options so that no part of a request arrives long after it was sent, however connection or process end.

    Without these options the kernel may send the data of a closed connection for minutes.
    """
    made = transport.get_extra_info("socket")
    if made is None:
        return  # it is closed already
    with suppress(OSError):  # the other end has reset it
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        for option, value in (*KEEP_ALIVE, ("TCP_USER_TIMEOUT", int(UNANSWERED * 1000))):
            if hasattr(socket, option):  # not everywhere
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
