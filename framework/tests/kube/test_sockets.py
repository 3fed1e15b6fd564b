"""What the kernel does with the sockets to an API server: a write that was given up does not arrive late."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
import uvloop

from gangline.errors import Unavailable
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.resources import NODES
from gangline.kube.sockets import UNANSWERED
from gangline.kube.writing import KeptWriter

from .certificates import Certificates

LOOPS = pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class Slow:
    """A server that accepts one connection, reads nothing until it is told to, and says how the connection ended."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.may_read = threading.Event()
        self.end = ""
        self._context = context
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen()
        self.port = int(self._listening.getsockname()[1])

    def serve(self) -> None:
        raw, _ = self._listening.accept()
        raw.settimeout(30)
        connection = self._context.wrap_socket(raw, server_side=True) if self._context else raw
        self.may_read.wait(30)
        try:
            while os.read(connection.fileno(), 1 << 16):  # past the TLS
                pass
            self.end = "all that was sent has arrived"
        except ConnectionResetError:
            self.end = "reset"
        connection.close()
        self._listening.close()


@contextmanager
def slow_server(context: ssl.SSLContext | None = None) -> Iterator[Slow]:
    server = Slow(context)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    thread.join()


def writer_to(port: int, context: ssl.SSLContext | None = None, seconds: float = 0.2) -> KeptWriter:
    scheme = "https" if context else "http"
    return KeptWriter(f"{scheme}://127.0.0.1:{port}", context, None, connections=1, timeout=seconds, headers={})


@LOOPS
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_write_without_an_answer_is_taken_back_from_the_kernel(
    scheme: str, factory: LoopFactory, certificates: Certificates
) -> None:
    """Else the rest arrives when the other end reads again, and the binding is made long after it was given up."""
    served = trusted = None
    if scheme == "https":
        served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        served.load_cert_chain(certificates.server, certificates.server_key)
        trusted = ssl.create_default_context(cafile=str(certificates.ca))

    async def story(server: Slow) -> None:
        writer = writer_to(server.port, trusted)
        with pytest.raises(TimeoutError):
            await writer.request("POST", "/", {}, b"x" * (1 << 16))
        await writer.close()

    with slow_server(served) as server, asyncio.Runner(loop_factory=factory) as runner:
        runner.run(story(server))
        server.may_read.set()

    assert server.end == "reset"


@LOOPS
def test_the_kernel_gives_up_soon_what_nobody_acknowledges_and_resets_what_is_closed(factory: LoopFactory) -> None:
    """Also if the process is stopped or killed meanwhile."""
    options: list[object] = []

    async def story() -> None:
        writer = writer_to(port)
        connection = await writer._pool.connect()
        assert connection._transport is not None
        made = connection._transport.get_extra_info("socket")
        options.append(made.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        options.append(made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        options.append(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        options.append(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
        await writer.close()

    with socket.create_server(("127.0.0.1", 0)) as listening, asyncio.Runner(loop_factory=factory) as runner:
        port = int(listening.getsockname()[1])
        runner.run(story())

    assert options == [b"\1\0\0\0\0\0\0\0", 1, UNANSWERED * 1000, 15]


@LOOPS
def test_a_read_that_is_given_up_is_reset_too(factory: LoopFactory) -> None:
    """Through a proxy the general client writes as well."""

    async def story(port: int) -> None:
        credentials = Credentials(lambda: Access(f"http://127.0.0.1:{port}"))
        async with HttpClient(credentials, timeout=0.1, sleep=lambda seconds: asyncio.sleep(0)) as client:
            with suppress(Unavailable):
                await client._transport._read_once(NODES.path(None), {"x": "y" * 60_000}, client._transport.limits, "")

    with slow_server() as server, asyncio.Runner(loop_factory=factory) as runner:
        runner.run(story(server.port))
        server.may_read.set()

    assert server.end == "reset"
