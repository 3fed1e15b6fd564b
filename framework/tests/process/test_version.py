"""What the three programs say of themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PROGRAMS = ("gangline", "gangline-agent", "gangline-webhook")


def said(program: str, commit: str) -> str:
    """What a program prints for --version, built from this commit."""
    environ = {**os.environ, "GANGLINE_COMMIT": commit}
    command = [str(BIN / program), "--version"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_names_its_version_and_the_commit_of_its_image(program: str) -> None:
    assert said(program, "abc1234") == f"{program} {version('gangline')} (abc1234)\n"


def test_without_a_commit_it_names_the_version_alone() -> None:
    assert said("gangline", "") == f"gangline {version('gangline')}\n"
