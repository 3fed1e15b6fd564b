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


def test_packages_of_plugins_have_folders_of_tests_with_their_names() -> None:
    plugins = ROOT.parents[1] / "plugins"
    tests = {path.parent.name for path in (plugins / "tests").glob("*/test_*.py")}

    assert tests == {path.parent.name for path in (plugins / "gangline_plugins").glob("*/__init__.py")}


def test_plugins_may_import_what_is_public_and_nothing_else() -> None:
    contracts = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each.get("source_modules") == ["gangline_plugins"])
    modules = {path.stem for path in ROOT.glob("*.py")} - {"__init__"} | ROOMS

    allowed = modules - {name.removeprefix("gangline.") for name in contract["forbidden_modules"]}

    assert allowed == {"model", "moments", "quantity", "command_line", "dra"}
    assert allowed - {"command_line", "dra"} <= set(gangline.__all__)


OF_SEVERAL = {
    "Args": "the arguments of the plugin of a module",
    "GpuClaim": "the kind, and the plugin of that name",
    "NodeAffinity": "a field of pods, and the plugin of that name",
    "PodGroup": "the kinds of all dialects, and the one shape for them",
}
"""Names of several classes that mean the same."""


def test_a_name_of_a_class_has_one_meaning() -> None:
    found: dict[str, list[str]] = {}
    for root in (ROOT, ROOT.parents[1] / "plugins" / "gangline_plugins"):
        for path in root.rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(f"{path.relative_to(root)}")

    assert len(found) > 500
    assert {name: paths for name, paths in found.items() if len(paths) > 1 and name not in OF_SEVERAL} == {}
