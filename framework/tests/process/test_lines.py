"""A log that takes nothing more holds nobody up."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from gangline.process.lines import PATIENCE, Lines, on_one_line, visible


@contextmanager
def pipe() -> Iterator[tuple[int, TextIO]]:
    """A pipe: the descriptor to read from, and the stream to write to."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        yield reading, stream
    os.close(reading)


def fill(lines: Lines) -> int:
    """Write until lines are lost; returns how many were written."""
    number = 0
    while not lines._lost:
        lines.write(f"{number:099d}")
        number += 1
    return number - 1


def test_lines_that_a_full_pipe_does_not_take_are_lost_and_the_next_one_says_how_many() -> None:
    with pipe() as (reading, stream):
        lines = Lines(stream)
        written = fill(lines)
        began = time.monotonic()
        for _ in range(999):
            lines.write("lost")
        took = time.monotonic() - began
        got = b""
        while len(got) < written * 100:
            got += os.read(reading, 1 << 20)
        lines.write("back")
        lines.write("again")
        after = os.read(reading, 1 << 20).decode()

    assert took < 5 * PATIENCE
    assert after.lstrip("\n").splitlines() == [
        "lines that could not be written and are lost: 1000",
        "back",
        "again",
    ]


def test_a_line_that_was_written_in_part_is_ended_before_the_next_one() -> None:
    with pipe() as (reading, stream):
        lines = Lines(stream)
        lines.write("x" * 200_000)
        got = os.read(reading, 1 << 20)
        lines.write("next")
        after = os.read(reading, 1 << 20).decode()

    assert got.strip(b"x") == b"" and len(got) >= 4096
    assert after == "\nlines that could not be written and are lost: 1\nnext\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_disk_and_a_closed_pipe_are_no_errors() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open("/dev/full", "w") as full, os.fdopen(writing, "w") as nobody:
        for stream in (full, nobody):
            lines = Lines(stream)
            lines.write("one")
            lines.write("two")
            assert lines._lost == 2


def test_a_stream_without_a_descriptor_is_written_to() -> None:
    stream = io.StringIO()
    lines = Lines(stream)

    lines.write("one")
    stream.close()
    lines.write("two")


@pytest.mark.parametrize("text", ["caf\u00e9 \u2192", "\ud800"], ids=["other letters", "half a letter"])
def test_every_text_can_be_written(text: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        Lines(stream).write(text)

    assert (tmp_path / "log").read_bytes() == text.encode("utf-8", "backslashreplace") + b"\n"


@pytest.mark.parametrize("odd", ["\x1b", "\x9b", "\u061c", "\u200e", "\u200f", "\u202e", "\u2028", "\u2029", "\u2066"])
def test_what_a_terminal_would_obey_is_written_visibly(odd: str) -> None:
    code = f"\\x{ord(odd):02x}" if ord(odd) < 256 else f"\\u{ord(odd):04x}"

    assert visible(f"a{odd}b") == f"a{code}b"


def test_a_text_of_somebody_else_is_one_line() -> None:
    said = on_one_line("v9\nsecond\u2028third\r\x85fourth")

    assert said == "v9\\nsecond\\u2028third\\x0d\\x85fourth"
    assert len(said.splitlines()) == 1
