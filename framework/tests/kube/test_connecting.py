"""Connections that the other end resets, over real sockets: each fails alone."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import uvloop

from gangline.errors import Unavailable
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.resources import NODES

ATTEMPTS = 200
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: a close is a reset."""


@contextmanager
def resetting_server() -> Iterator[int]:
    """A port whose connections are reset as soon as they are accepted."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)

    def reset() -> None:
        with suppress(OSError):  # closed: the test is over
            while True:
                connection, _ = listening.accept()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                connection.close()

    thread = threading.Thread(target=reset)
    thread.start()
    yield int(listening.getsockname()[1])
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_reset_connection_is_unavailable_and_leaves_no_socket_behind(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A socket that is collected open closes its number once more, whosever that is by then: pytest fails for it."""

    async def ask(client: HttpClient) -> None:
        with pytest.raises(Unavailable):
            await client.get(NODES, "a")
        with pytest.raises(Unavailable):
            await client.bind("default", "a", "uid", "node", {})

    async def story(port: int) -> None:
        credentials = Credentials(lambda: Access(f"{scheme}://127.0.0.1:{port}", verify=False))
        async with HttpClient(credentials, sleep=lambda seconds: asyncio.sleep(0)) as client:
            for _ in range(ATTEMPTS // 20):
                await asyncio.gather(*(ask(client) for _ in range(20)))

    with resetting_server() as port, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story(port))
    gc.collect()

    assert not [record for record in caplog.records if record.exc_info]
