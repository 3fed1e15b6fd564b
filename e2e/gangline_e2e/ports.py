"""TCP ports on 127.0.0.1 for the programs that tests start.

A program is told its port before it listens, and some listen on it again after they have ended. If the port went to
somebody else in between, the program would end with "Address already in use". So

- ports come from below the range from which the kernel lends (to `bind` with port 0, and to every connection that a
  client opens);
- ports come from blocks, each of which belongs to one process of tests until it ends. The process that has bound the
  UDP port with the number of the first port has the block; nothing here speaks UDP.
"""

from __future__ import annotations

import atexit
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gangline_e2e.errors import HarnessError

LENT = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUALLY_LENT_FROM = 32768
FIRST = 10_100
"""Browsers refuse to connect to port 10080."""
BLOCK = 100
FEWEST_BLOCKS = 20


def free_ports(count: int) -> list[int]:
    """Different ports that nothing listens on and that nobody was given before; HarnessError when there are too few."""
    return [next(_ports) for _ in range(count)]


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def _all_ports() -> Iterator[int]:
    firsts = list(range(FIRST, _lent_from() - BLOCK + 1, BLOCK))
    random.Random().shuffle(firsts)
    for first in firsts:
        if _has_taken(first):
            yield from filter(_is_free, range(first, first + BLOCK))
    raise HarnessError(f"ports: all {len(firsts)} blocks of {BLOCK} ports from {FIRST} on are taken")


_ports = _all_ports()


def _lent_from() -> int:
    with suppress(OSError, ValueError):
        lowest = int(LENT.read_text().split()[0])
        if lowest >= FIRST + FEWEST_BLOCKS * BLOCK:
            return lowest
    return USUALLY_LENT_FROM


def _has_taken(first: int) -> bool:
    """Take the block that begins with this port until this process ends, unless another process has it."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        holder.bind(("127.0.0.1", first))
    except OSError:
        holder.close()
        return False
    atexit.register(holder.close)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
