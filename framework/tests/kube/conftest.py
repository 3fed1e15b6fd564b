"""The fake API server, a client for it, and certificates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from gangline.errors import InvalidObject
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient

from .certificates import Certificates
from .fake_api_server import FakeApiServer

LoopFactories = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]
ONE: LoopFactories = {"asyncio": asyncio.new_event_loop}
BOTH: LoopFactories = {**ONE, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    """The event loops on which a test runs: where connections break, asyncio and uvloop are not the same."""
    return BOTH if item.path.stem == "test_reading" else ONE


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    fake = FakeApiServer()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
def skipped() -> list[tuple[str, str, InvalidObject]]:
    """The objects that the client has reported as undecodable."""
    return []


@pytest.fixture
def slept() -> list[float]:
    """How long the client would have waited between attempts."""
    return []


@pytest.fixture
async def client(
    server: FakeApiServer, skipped: list[tuple[str, str, InvalidObject]], slept: list[float]
) -> AsyncIterator[HttpClient]:
    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with HttpClient(
        Credentials(lambda: Access(server.url)),
        timeout=5.0,
        on_invalid=lambda _, namespace, name, error: skipped.append((namespace, name, error)),
        sleep=sleep,
    ) as made:
        yield made


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder: Path = tmp_path_factory.mktemp("certificates")
    return Certificates(folder)


@pytest.fixture
async def tls_server(certificates: Certificates) -> AsyncIterator[FakeApiServer]:
    """An API server that takes only clients with a certificate of the authority."""
    fake = FakeApiServer()
    await fake.start(certificates.of_server())
    fake.answers("GET", "/api/v1", {"resources": [{"name": "pods"}]})
    yield fake
    await fake.stop()
