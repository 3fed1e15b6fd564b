"""Rooms are what the design notes say."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import gangline

ROOT = Path(gangline.__file__).parent
ROOMS = {path.parent.name for path in ROOT.glob("*/__init__.py")}
NOTES = ROOT.parents[1] / "docs/design.md"


def sentence(room: str) -> str:
    """The first line of what a room says of itself."""
    return (ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or "").partition("\n")[0]


def test_the_design_notes_have_each_room_with_its_sentence() -> None:
    told = dict(re.findall(r"^\| `([a-z]+)/` \| (.*) \|$", NOTES.read_text(), re.MULTILINE))

    assert told == {room: sentence(room) for room in ROOMS}


def test_tests_of_the_framework_stand_in_rooms_that_there_are() -> None:
    tests = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}

    assert tests <= ROOMS


def test_plugins_may_import_what_is_public_and_nothing_else() -> None:
    contracts = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each.get("source_modules") == ["gangline_plugins"])
    modules = {path.stem for path in ROOT.glob("*.py")} - {"__init__"} | ROOMS

    allowed = modules - {name.removeprefix("gangline.") for name in contract["forbidden_modules"]}

    assert allowed == {"model", "moments", "quantity", "command_line", "dra"}
    assert allowed - {"command_line", "dra"} <= set(gangline.__all__)
