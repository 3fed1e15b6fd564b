"""Rooms are what the design notes say."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

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


IN_TESTS = {"command_line", "main", "model", "moments", "quantity", "simulate", "testing"}
"""The modules of `gangline` that tests of plugins may import besides its public names."""


IMPORT = re.compile(r"^ *((?:from +[\w.]+ +)?import +(?:\([^)]*\)|[\w.,* ]+))", re.MULTILINE)
"""Every import, and lines of texts that look like one. To parse these alone takes a tenth of the time of all code."""


def imported(code: str) -> set[str]:
    """The modules that code imports, and the names that it imports from packages, with dots."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found


def not_public(code: str) -> list[str]:
    """What code may not import and imports."""
    looks_so = imported("\n".join(IMPORT.findall(code)))
    return [] if all(map(is_public, looks_so)) else sorted(name for name in imported(code) if not is_public(name))


def is_public(name: str) -> bool:
    """Whether tests of plugins may import this: names that `gangline` exports, `gangline.testing`, a few modules."""
    package, _, rest = name.partition(".")
    if package != "gangline":
        return package not in ("framework", "plugins")
    first, _, more = rest.partition(".")
    if first in gangline.__all__ and not more:
        return True
    return first in IN_TESTS and (first == "testing" or "." not in more)


@pytest.mark.parametrize("folder", ["plugins/tests", "examples/tests"])
def test_tests_of_plugins_import_what_is_public_and_nothing_else(folder: str) -> None:
    paths = list((ROOT.parents[1] / folder).rglob("*.py"))

    assert paths
    assert {path.name: bad for path in paths if (bad := not_public(path.read_text()))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "from gangline import (\n    NodeView,\n    config,\n)",
        "import numpy, gangline.config as c",
        "def f() -> None:\n    from gangline.state.cache import Cache",
        "TEXT = 'import gangline.config'\nimport gangline.config",
    ],
)
def test_an_import_is_seen_wherever_it_stands(code: str) -> None:
    assert [name.removesuffix(".Cache") for name in not_public(code)] in (["gangline.config"], ["gangline.state.cache"])


def test_a_text_with_an_import_imports_nothing() -> None:
    assert not_public('TEXT = """\nimport gangline.config\n"""') == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gangline.NodeView", True),
        ("gangline.resources", True),
        ("gangline.model.Pod", True),
        ("gangline.simulate.run", True),
        ("gangline.testing.deciding.decide", True),
        ("numpy", True),
        ("gangline.config", False),
        ("gangline.state.cache.Cache", False),
        ("gangline.simulate.client.Faults", False),
        ("gangline.kube.resources.PODS", False),
        ("framework.tests.profile.histories.Step", False),
    ],
)
def test_what_is_public_is_told_from_what_is_not(name: str, expected: bool) -> None:
    assert is_public(name) is expected


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
            for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
                found.setdefault(name, []).append(f"{path.relative_to(root)}")

    assert len(found) > 500
    assert {name: paths for name, paths in found.items() if len(paths) > 1 and name not in OF_SEVERAL} == {}
