"""The command line of the harness refuses what makes no cluster, before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gangline_e2e import background
from gangline_e2e.__main__ import cli, next_steps


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["--spines", "2"], "--spines needs --leaves", id="spines alone"),
        pytest.param(["--leaves", "2"], "0 nodes cannot be under 2 leaves", id="no nodes"),
        pytest.param(["--nodes", "4", "--leaves", "2", "--spines", "3"], "2 leaves of 3 spines", id="too many spines"),
        pytest.param(["--nodes", "4", "--gpus", "17"], "--gpus", id="too many GPUs"),
    ],
)
def test_a_fabric_that_cannot_be_is_refused(tmp_path: Path, words: list[str], why: str) -> None:
    result = CliRunner().invoke(cli, ["up", "--dir", str(tmp_path / "none"), *words])

    assert result.exit_code == 2
    assert why in result.output
    assert not (tmp_path / "none").exists()


def test_the_command_that_ends_a_control_plane_names_its_folder(tmp_path: Path) -> None:
    assert f"gangline_e2e down --dir {tmp_path} " in next_steps(0, 8, None, 1, tmp_path)
    assert "--dir" not in next_steps(0, 8, None, 1, background.default_folder().absolute())
