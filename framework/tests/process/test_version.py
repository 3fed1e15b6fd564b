"""What the three programs say of themselves, and that they start without the columns of the scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PROGRAMS = ("gangline", "gangline-agent", "gangline-webhook")


COLUMNS = {"gangline.public", "gangline.state.nodes", "numpy"}
RUN = "import atexit, runpy, sys; atexit.register(lambda: print(*sys.modules)); sys.argv = sys.argv[1:]; "
RUN += "runpy.run_path(sys.argv[0], run_name='__main__')"
"""Runs an installed program, and prints in the end which modules it has imported."""


@cache
def said(program: str, commit: str) -> tuple[str, set[str]]:
    """What a program prints for --version, built from this commit, and the modules that it has imported."""
    environ = {**os.environ, "GANGLINE_COMMIT": commit}
    command = [sys.executable, "-c", RUN, str(BIN / program), "--version"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    line, modules = done.stdout.splitlines()
    return line, set(modules.split())


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_names_its_version_and_the_commit_of_its_image(program: str) -> None:
    assert said(program, "abc1234")[0] == f"{program} {version('gangline')} (abc1234)"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_starts_without_the_columns_of_the_scheduler(program: str) -> None:
    modules = said(program, "abc1234")[1]

    assert f"{program.replace('-', '_')}.main" in modules and not modules & COLUMNS


def test_without_a_commit_it_names_the_version_alone() -> None:
    assert said("gangline", "")[0] == f"gangline {version('gangline')}"
