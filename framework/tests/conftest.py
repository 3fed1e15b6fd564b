"""A place for distributions that a test installs; and no authorities, because no test asks a server elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The system knows more than a hundred authorities, which take 26 ms of CPU to read: in each process of a test that
# imports aiohttp, and for each of some 80 kubeconfigs that name no authority. A test that needs one names it.
os.environ["SSL_CERT_FILE"] = os.devnull


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder in which a test can install distributions."""
    sys.path.insert(0, str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    sys.path.remove(str(tmp_path))
    for module in set(sys.modules) - before:
        if (tmp_path / f"{module}.py").exists():
            del sys.modules[module]
