"""Every command that a page tells to type is there, with the options that it is typed with."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from gangline import main

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
TYPED = re.compile(r"^    (?:\.venv/bin/)?((?:gangline|make) .*?)(?: +#.*| \\)?$", re.MULTILINE)
LINES = sorted({line for page in PAGES for line in TYPED.findall(page.read_text(encoding="utf-8"))})
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def command_of(words: list[str]) -> click.Command:
    """The command that words begin with; the first word that names none is its argument."""
    command: click.Command = main.cli
    for word in words:
        found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if found is None:
            break
        command = found
    return command


def faults(line: str) -> list[str]:
    """What of a line cannot be typed. `a|b` stands for either, and `-` for standard input or output."""
    program, first, *rest = shlex.split(line)
    if program == "make":
        return [first] if first not in TARGETS else []
    nexts = rest[0].split("|") if rest and "|" in rest[0] else rest[:1]
    wrong = []
    for word in nexts or [""]:
        command = command_of([first, word])
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        is_group = command is main.cli or isinstance(command, click.Group)
        wrong += [first] if is_group else []
        wrong += [each for each in rest if each.startswith("-") and each not in {*known, "-"}]
    return wrong


@pytest.mark.parametrize("line", LINES)
def test_a_command_can_be_typed(line: str) -> None:
    assert faults(line) == []


@pytest.mark.parametrize(
    "line", ["gangline statsu", "gangline defrag paln", "gangline status --wide", "make coffee"], ids=str
)
def test_one_that_cannot_is_found_out(line: str) -> None:
    assert faults(line)


def test_the_front_page_is_among_them() -> None:
    assert len(LINES) > 30
    assert {"make run", "gangline status", "gangline defrag plan"} <= set(LINES)
