"""A cluster that commands can read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .cluster_over_http import ClusterOverHttp


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[ClusterOverHttp]:
    found = ClusterOverHttp(tmp_path)
    await found.start()
    yield found
    await found.stop()
