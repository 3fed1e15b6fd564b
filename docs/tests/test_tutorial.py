"""The tutorial: its files make a package that can be installed, passes its own tests and decides as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.tests.installing import install_source
from framework.tests.invoking import invoked

from gangline.commands.plugins import plugins
from gangline_docs.site import filled

PAGE = (Path(__file__).parents[1] / "writing-a-plugin.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page, and its package installed in `site`."""
    folder = tmp_path_factory.mktemp("tutorial")
    for _, name, text in BLOCK.findall(PAGE):
        if "." in name:
            (folder / name).write_text(text, encoding="utf-8")
    install_source(folder, folder / "site")
    return folder


def test_the_tests_of_the_tutorial_pass(package: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(package / "site")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the tests need none, and they take long to load
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_quiet_nodes.py")

    done = subprocess.run(
        [sys.executable, *words], cwd=package, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.fixture
def installed(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is installed in this process, which stands in its folder."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(package)
    monkeypatch.syspath_prepend(package / "site")
    yield
    sys.modules.pop("quiet_nodes", None)


@pytest.mark.usefixtures("installed")
def test_the_plugin_is_found() -> None:
    assert "QuietNodes" in invoked("plugins", "list")


@pytest.mark.usefixtures("installed")
def test_the_plugin_decides_as_the_page_says() -> None:
    said = next(text for _, name, text in BLOCK.findall(PAGE) if name == "What it prints")

    printed = invoked("explain", "-f", "case.yaml", "--config", "profile.yaml")

    assert [line.split() for line in printed.splitlines()] == [line.split() for line in said.splitlines()]


def test_the_skeleton_that_the_page_speaks_of_can_be_written() -> None:
    assert "gangline plugins new QuietNodes" in PAGE
    assert "new" in plugins.commands


def test_the_page_lists_what_else_a_plugin_can_do() -> None:
    assert "- **`args_type`**" in filled(PAGE)
