"""`gangline replay` on small traces."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gangline.errors import GanglineError, TraceError
from gangline.main import cli

TRACE = (
    "arrival,duration,pods,gpus,fraction,cpu,priority\n"
    "0,3600,1,8,,16,\n10,3600,2,8,,16,\n20,600,1,1,0.5,2,\n60,600,2,8,,1,100\n"
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_profiles_are_set_side_by_side(trace: Path) -> None:
    words = ["replay", str(trace), "--nodes", "3x8", "--profile", "gpu-scheduler", "--profile", "default"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)

    assert result.exit_code == 0
    rows = result.stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["PROFILE", "gpu-scheduler", "default-scheduler"]
    assert result.stderr == "note: default-scheduler: it knows no parts of GPUs, so each part counts as a whole GPU\n"


def test_json_has_the_figures_of_the_report(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ["replay", str(trace), "--nodes", "3x8", "-o", "json", "--report", str(page)]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    found = json.loads(result.stdout)

    assert (found["pods"], found["nodes"], found["gpus"]) == (6, 3, 24)
    (figures,) = found["profiles"]
    assert figures["finished"] == 6
    assert f"{figures['use']['gpus']:.1%}" in page.read_text()


def test_a_configuration_file_is_a_profile_too(trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: mine}]\n"
    )
    words = ["replay", str(trace), "--nodes", "3x8", "--config", str(file), "--profile", "default", "--duration", "1h"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)

    assert [row.split()[0] for row in result.stdout.splitlines()] == ["PROFILE", "default-scheduler", "mine"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the trace names no nodes: add a list of nodes to it, or say --nodes 300x8"),
        (["--nodes", "many"], "--nodes 'many' is no NODESxGPUS: something like 300x8 is expected"),
        (["--nodes", "/dev/null"], "something like 300x8 is expected; a list of nodes is a TRACE of its own"),
        (["--nodes", "3x8", "--speed", "0"], "--speed 0 is not between 1e-06 and 1e+06"),
        (["--nodes", "3x8", "--speed", "nan"], "--speed nan is not between 1e-06 and 1e+06"),
        (["--nodes", "3x8", "--speed", "1e-300"], "--speed 1e-300 is not between 1e-06 and 1e+06"),
        (["--nodes", "3x8", "--report", "/proc/none/x.html"], "--report /proc/none/x.html: /proc/none is no folder"),
        (["--nodes", "3x8", "--duration", "soon"], "--duration 'soon' is no duration"),
        (["--nodes", "3x8", "--duration", "0s"], "--duration '0s' leaves no time for a pod"),
        (["--nodes", "3x8", "--profile", "other"], "other: not installed; there are default, gangline, gpu-scheduler"),
    ],
)
def test_wrong_usage_is_said_in_one_line(trace: Path, words: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["replay", str(trace), *words])

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_broken_line_is_a_failure_that_is_named(trace: Path) -> None:
    trace.write_text(TRACE + "x,1,1,1,,1,\n")
    result = CliRunner().invoke(cli, ["replay", str(trace), "--nodes", "3x8"])

    assert isinstance(result.exception, TraceError)
    assert str(result.exception) == f'{trace}:6: column 1 (arrival): "x": not a number of seconds'
    assert result.exception.exit_code == 1


def test_nodes_are_either_listed_or_counted(trace: Path, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nnode-00000,64000,262144,8,A100\n")
    result = CliRunner().invoke(cli, ["replay", str(trace), str(nodes), "--nodes", "3x8"])

    assert result.exit_code == 2
    assert "--nodes is for a trace without nodes: leave it out, or the list of nodes" in result.stderr


def test_a_report_on_standard_output_is_alone_there(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(cli, ["replay", str(trace), "--nodes", "3x8", "--report", "-"])

    assert result.exit_code == 0
    assert result.stdout.startswith("<!doctype html>") and result.stdout.rstrip().endswith("</html>")
    assert "PROFILE" in result.stderr
    assert not (tmp_path / "-").exists()


def test_a_report_that_cannot_be_written_is_said_in_one_line(trace: Path) -> None:
    result = CliRunner().invoke(cli, ["replay", str(trace), "--nodes", "3x8", "--report", "/dev/full"])

    assert isinstance(result.exception, GanglineError)
    assert str(result.exception) == "--report /dev/full: cannot be written: No space left on device"


def test_a_pipe_is_refused_because_it_can_be_read_only_once() -> None:
    reading, writing = os.pipe()
    try:
        result = CliRunner().invoke(cli, ["replay", f"/dev/fd/{reading}", "--nodes", "3x8"])
    finally:
        os.close(reading)
        os.close(writing)

    assert isinstance(result.exception, TraceError)
    assert str(result.exception) == f"/dev/fd/{reading}: not a regular file: write the trace to a file first"
