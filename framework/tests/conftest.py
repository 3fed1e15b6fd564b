"""A place for distributions that a test installs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


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
