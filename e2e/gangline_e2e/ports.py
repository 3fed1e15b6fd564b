"""TCP ports on 127.0.0.1 for the programs that tests start.

A program is told its port before it listens. A port that the kernel lends by itself (to `bind` with port 0, and to
every connection that a client opens) could be lent to somebody else in between, and then the program ends with
"Address already in use". So the ports come from below the range from which the kernel lends.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

from gangline_e2e.errors import HarnessError

LENT = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUALLY_LENT_FROM = 32768
FIRST = 10_000
TRIES = 10_000

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Different ports that nothing listens on and that this process was not given before; HarnessError when there are
    too few."""
    below = _lent_from()
    found: list[int] = []
    for _ in range(TRIES):
        if len(found) == count:
            return found
        port = random.randrange(FIRST, below)
        if port not in _given and _is_free(port):
            _given.add(port)
            found.append(port)
    raise HarnessError(f"ports: found {len(found)} of {count} free ports between {FIRST} and {below}")


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def _lent_from() -> int:
    with suppress(OSError, ValueError):
        lowest = int(LENT.read_text().split()[0])
        if lowest > FIRST + TRIES:
            return lowest
    return USUALLY_LENT_FROM


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
