"""A cluster that commands can read, and the program in processes of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from .cluster_over_http import ClusterOverHttp
from .forked import Forking


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[ClusterOverHttp]:
    found = ClusterOverHttp(tmp_path)
    await found.start()
    yield found
    await found.stop()


@pytest.fixture(scope="session")
def forking() -> Iterator[Forking]:
    made = Forking()
    yield made
    made.close()
