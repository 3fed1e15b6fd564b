"""The webhook as a process under requests that mean it harm: it stays small, answers probes, and reviews pods."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from gangline_e2e.certificates import Authority
from gangline_webhook.serving import MOST_CONNECTIONS

from .reviews import pod, review, text

LIMIT = 256 << 20
"""Bytes that the chart gives the webhook."""
CLAIMED = text(review(pod(annotations={"gpu.scheduling/claim": "four"})))
CHUNK = b" " * (1 << 16)

pytestmark = pytest.mark.timeout(120)


@dataclass
class Process:
    """A webhook that runs."""

    pid: int
    reviews: int
    health: int
    tls: ssl.SSLContext

    def peak(self) -> int:
        """The most memory that it had, in bytes."""
        return 1024 * int(
            re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)[0]
        )

    @asynccontextmanager
    async def flooded(self, connections: int, sent: int) -> AsyncIterator[None]:
        """So many connections with a request of 8 MB each, of which so much is sent, until the block ends."""
        lanes = asyncio.Semaphore(50)
        writers: list[asyncio.StreamWriter] = []

        async def hold() -> None:
            async with lanes, asyncio.timeout(30):
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.reviews, ssl=self.tls)
                    writers.append(writer)
                    writer.write(b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n")
                    for _ in range(sent // len(CHUNK)):
                        writer.write(CHUNK)
                        await writer.drain()

        try:
            await asyncio.gather(*[hold() for _ in range(connections)])
            yield
        finally:
            for writer in writers:
                writer.transport.abort()
            async with asyncio.timeout(30):  # before the loop ends, or the sockets stay open
                await asyncio.gather(*[writer.wait_closed() for writer in writers], return_exceptions=True)

    async def reviewed(self) -> int:
        """The status of the answer to a review."""
        url = f"https://127.0.0.1:{self.reviews}/mutate"
        async with aiohttp.request("POST", url, data=CLAIMED, ssl=self.tls) as answer:
            return answer.status

    async def probed(self) -> int:
        """The status of a probe."""
        timeout = aiohttp.ClientTimeout(total=3)
        async with aiohttp.request("GET", f"http://127.0.0.1:{self.health}/healthz", timeout=timeout) as answer:
            return answer.status


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One for all tests: what they do to it must harm no other request."""
    authority = Authority(tmp_path_factory.mktemp("webhook"), "authority")
    pair = authority.server("webhook")
    words = ["--tls-cert-file", str(pair.certificate), "--tls-private-key-file", str(pair.key), "--no-claims"]
    words += ["--addr", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--secure-listen="]
    command = [sys.executable, "-m", "gangline", "webhook", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        found = None
        while found is None:
            line = running.stderr.readline()
            assert line, "it has ended"
            found = re.search(r"reviews on port (\d+), health on port (\d+)", line)
        tls = ssl.create_default_context(cafile=authority.certificate)
        yield Process(running.pid, int(found[1]), int(found[2]), tls)
        ended = running.poll()
        running.terminate()
        running.communicate()
    assert ended is None


@pytest.mark.parametrize(
    ("connections", "sent"),
    [
        pytest.param(44, 6_000_000, id="44 of 6 MB"),
        pytest.param(MOST_CONNECTIONS + 40, 2 * len(CHUNK), id="more than it has connections"),
    ],
)
async def test_half_open_requests_exhaust_neither_its_memory_nor_its_probes(
    process: Process, connections: int, sent: int
) -> None:
    async with process.flooded(connections, sent):
        assert await process.probed() == 200
        assert await process.reviewed() == 200

    assert process.peak() < LIMIT


async def test_a_request_without_an_end_is_answered_408(process: Process) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", process.reviews, ssl=process.tls)
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")

    async with asyncio.timeout(30):
        answer = await reader.read()  # to its end: the connection is closed

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the request was not complete after 5 s" in answer
    writer.transport.abort()
