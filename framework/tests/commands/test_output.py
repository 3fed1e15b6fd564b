"""The output of commands: on narrow terminals, in pipes that nobody reads, and where it cannot be written."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from rich.console import Console

from gangline import main
from gangline.commands.answering import Answer
from gangline.commands.explain import show
from gangline.commands.output import drawn, put, table, told
from gangline.errors import GanglineError
from gangline.explain.report import NodeReport, Report, Verdict
from gangline.process.lines import write_any_text
from gangline.status import Code
from gangline_e2e.forked_programs import Forking

from .cluster_over_http import ClusterOverHttp
from .terminal import Terminal

ESCAPES = re.compile(r"\x1b\[\d*m")


@pytest.mark.parametrize("words", [("config", "show"), ("profiles", "list")], ids=["text", "table"])
def test_a_full_disk_is_named_in_one_line(forking: Forking, words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = forking.run(words, output=full.fileno())

    assert (done.returncode, done.stderr) == (
        1,
        b"gangline: the output cannot be written: No space left on device\n",
    )


def test_an_output_that_is_closed_is_no_failure() -> None:
    words = ["bash", "-c", '"$0" -m gangline profiles list >&-', sys.executable]
    done = subprocess.run(words, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_an_output_that_nobody_reads_ends_the_command_without_a_line(forking: Forking) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = forking.run(("config", "show"), output=writing)
    os.close(writing)

    assert (done.returncode, done.stderr) == (1, b"")


def test_a_drawing_can_be_printed_in_an_encoding_without_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    node["status"] = {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9", "nvidia.com/gpu": "2"}}
    (tmp_path / "node.json").write_text(json.dumps(node))
    printed = io.BytesIO()
    # As Python makes it where PYTHONIOENCODING says so.
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="latin-1"))
    monkeypatch.setattr(sys, "argv", ["gangline", "simulate", str(tmp_path)])

    main.main()

    sys.stdout.flush()
    assert b".. 0/2" in printed.getvalue()


def test_json_stays_json_in_an_encoding_that_lacks_characters() -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    write_any_text(output)

    output.write('"é→\U0001f600"')
    output.seek(0)

    assert json.loads(output.read()) == "é→\U0001f600"


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1A\r\u202egnp"


def test_what_others_wrote_cannot_do_anything_to_the_terminal() -> None:
    def draw(screen: Console) -> None:
        rows = table("NAME", "WHY")
        rows.add_row(HOSTILE, f"because of {HOSTILE}")
        put(screen, rows)
        screen.print(f"note: {HOSTILE}")

    text = drawn(draw) + told([], "name", [f"pod/{HOSTILE}"], draw)

    assert all(line.isprintable() for line in text.splitlines())
    assert text.count(r"\x1b]0;owned\x07\x1b[2J\x9b1A\x0d\u202egnp") == 4


def test_an_error_with_the_words_of_others_cannot_do_anything_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**how: object) -> None:
        raise GanglineError(HOSTILE)

    monkeypatch.setattr(main, "cli", fail)
    with pytest.raises(SystemExit):
        main.main()

    assert capsys.readouterr().err == "gangline: \\x1b]0;owned\\x07\\x1b[2J\\x9b1A\\x0d\\u202egnp\n"


async def test_a_watch_ends_when_nobody_reads_it_any_more(forking: Forking, lab: ClusterOverHttp) -> None:
    lab.add_nodes("a")
    environment = {**os.environ, "KUBECONFIG": str(lab.kubeconfig)}
    reading, writing = os.pipe()
    with TemporaryFile() as errors:
        program = await asyncio.to_thread(forking.start, ("status", "--watch"), writing, errors.fileno(), environment)
        os.close(writing)

        assert (await asyncio.to_thread(os.read, reading, 20)).startswith(b"0 of 8 GPUs")
        os.close(reading)  # nothing changes in the cluster

        assert await asyncio.to_thread(program.wait) == 1
        program.close()
        errors.seek(0)
        assert errors.read() == b""


def test_lines_do_not_end_with_spaces_that_a_narrow_terminal_would_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    rows = table("NODE", "WHY")
    rows.add_row("a-node-with-a-long-name-to-fill-the-line", "a long reason " * 10)

    lines = drawn(lambda screen: put(screen, rows), wide=True).splitlines()

    assert lines[0].endswith("\x1b[1mWHY\x1b[0m") and not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize("width", [80, 200, 400])
def test_the_scores_of_nodes_fit_on_the_terminal(
    width: int, lab: ClusterOverHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = {f"PluginWithALongName{number}": 2000000 for number in range(8)}
    scored = [NodeReport(f"node-{n}", (), False, dict.fromkeys(plugins, 37), 8 * 37 * 2000000) for n in range(2)]
    refused = NodeReport("node-2", (Verdict("Filter", Code.UNSCHEDULABLE, ("too little room " * 9,)),), False, {}, None)
    report = Report("default/p", "default", plugins, (*scored, refused), "")
    answer = Answer("default/p", "test", (), None, report, ())
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))

    lines = ESCAPES.sub("", drawn(lambda screen: show(answer, None, screen))).splitlines()

    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert words.count("37") == 16 and words.count("room") == 9 and all(any(p in w for w in words) for p in plugins)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_rows_that_are_wide_are_one_line_on_every_terminal(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "40")
    rows = table("NODE", "WHY")
    rows.add_row("node-1", "a long reason " * 20)

    assert len(drawn(lambda screen: put(screen, rows), wide=True).splitlines()) == 2
