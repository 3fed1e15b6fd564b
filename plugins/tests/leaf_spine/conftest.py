"""Where the scheduler of these tests runs."""

from __future__ import annotations

import pytest

from .leaf_cases import HOME


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler runs in the namespace HOME, as in a pod of its chart."""
    monkeypatch.setenv("POD_NAMESPACE", HOME)
