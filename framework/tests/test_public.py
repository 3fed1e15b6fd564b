"""The public API is complete, and is loaded when somebody asks for a name of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gangline
from gangline import public


def test_every_public_name_is_a_name_of_gangline() -> None:
    assert gangline.__all__ is public.__all__
    assert all(getattr(gangline, name) is getattr(public, name) for name in public.__all__)


def test_a_name_that_there_is_not_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'gangline' has no attribute 'NodeViews'"):
        gangline.NodeViews  # type: ignore[attr-defined]  # noqa: B018  # what the test is about


def test_a_star_imports_the_public_names() -> None:
    there: dict[str, object] = {}

    exec("from gangline import *", there)

    assert set(public.__all__) <= there.keys()


def test_a_module_that_lacks_what_it_imports_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.py").write_text("import no_such_package")
    monkeypatch.setattr(gangline, "__path__", [*gangline.__path__, str(tmp_path)])

    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        gangline.odd  # type: ignore[attr-defined]  # noqa: B018  # what the test is about


def test_the_public_api_is_loaded_when_a_name_of_it_is_needed() -> None:
    code = "import sys, gangline; gangline.NodeView; print('gangline.public' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"
