"""Runs a command of `gangline` in this process."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from gangline import main


def invoked(*words: str | Path) -> str:
    """What a command writes; it must succeed."""
    result = CliRunner().invoke(main.cli, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout
