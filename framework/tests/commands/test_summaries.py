"""The summaries of added commands are read, not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gangline.commands.summaries import written_summary
from gangline.main import added, load

COMMAND = """
import click, no_such_package

@click.command({arguments})
@click.option("--odd", help="This is no summary.")
def make(odd):
    \"\"\"Make room.

    More about the room.
    \"\"\"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that cannot be imported, on the path."""
    (tmp_path / "adding" / "deep").mkdir(parents=True)
    (tmp_path / "adding" / "__init__.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "adding"


@pytest.mark.parametrize(
    ("file", "module"),
    [("quick.py", "adding.quick"), ("deep/__init__.py", "adding.deep"), ("../single.py", "single")],
    ids=["module", "package", "single module"],
)
def test_a_summary_is_read_from_a_source_that_cannot_be_imported(package: Path, file: str, module: str) -> None:
    (package / file).write_text(COMMAND.format(arguments='"make"'))

    assert written_summary("make", f"{module}:make", 100) == "Make room."


@pytest.mark.parametrize("arguments", ['short_help="Other."', 'help="Other."', "**TEXTS", "deprecated=True"])
def test_a_summary_that_is_said_elsewhere_is_not_guessed(package: Path, arguments: str) -> None:
    (package / "quick.py").write_text(COMMAND.format(arguments=arguments))

    assert written_summary("make", "adding.quick:make", 100) is None


@pytest.mark.parametrize(
    "where",
    ["adding.absent:make", "no_such_package:make", "adding.odd:make", "adding.nul:make", "adding.odd", "sys:exit", ":"],
)
def test_what_is_no_source_of_a_command_has_no_summary(package: Path, where: str) -> None:
    (package / "odd.py").write_text("def make(:")
    (package / "nul.py").write_bytes(b"\0")

    assert written_summary("make", where, 100) is None


def test_a_written_summary_is_the_one_that_the_command_has() -> None:
    for name, entry in added().items():
        assert written_summary(name, entry.value, 100) == load(name, entry.value).get_short_help_str(100)


def test_help_imports_no_command() -> None:
    code = (
        "import sys, gangline.main; sys.argv[1:] = ['--help']\ntry: gangline.main.main()\nfinally: print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout

    assert "defrag " in told
    assert not {"numpy", "gangline_plugins", "gangline.command_line"} & {*told.splitlines()[-1].split()}
