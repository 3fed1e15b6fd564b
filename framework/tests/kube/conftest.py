"""The fake API server, a client for it, and certificates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gangline.errors import InvalidObject
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient

from .certificates import Certificates
from .fake_api_server import FakeApiServer


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
