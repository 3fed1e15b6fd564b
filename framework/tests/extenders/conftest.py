"""An extender on loopback, a client of the extender, and certificates."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gangline.extenders import HttpAsker

from ..kube.certificates import Certificates
from .fake_extender import ExtenderServer


@pytest.fixture
async def server() -> AsyncIterator[ExtenderServer]:
    fake = ExtenderServer()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def asker() -> AsyncIterator[HttpAsker]:
    made = HttpAsker()
    yield made
    await made.aclose()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))
