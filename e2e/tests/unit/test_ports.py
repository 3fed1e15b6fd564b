"""Ports belong to one process of tests until it ends, also while nothing listens on them."""

from __future__ import annotations

import socket
import subprocess
import sys

from gangline_e2e.ports import BLOCK, FIRST, free_port, free_ports

TAKE = """
from gangline_e2e.ports import free_ports
print(*free_ports(COUNT))
"""


def test_no_port_is_given_twice() -> None:
    ports = free_ports(2 * BLOCK)

    assert len({*ports}) == 2 * BLOCK


def test_another_process_gets_no_port_of_a_block_of_this_one() -> None:
    blocks = {(port - FIRST) // BLOCK for port in free_ports(BLOCK)}

    code = TAKE.replace("COUNT", str(50 * BLOCK))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    others = {(int(port) - FIRST) // BLOCK for port in done.stdout.split()}
    assert len(others) >= 50
    assert blocks.isdisjoint(others)


def test_a_port_on_which_somebody_listens_is_left_out() -> None:
    last = free_port()
    with socket.create_server(("127.0.0.1", last + 1)) as listening:
        assert free_port() != listening.getsockname()[1]
