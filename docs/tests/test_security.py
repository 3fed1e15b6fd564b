"""SECURITY.md: the tests that it names are there, and every claim has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w./-]+\.py)::(\w+)`", TEXT)))


def names_in(path: str) -> set[str]:
    """The test functions of a file; none if it is not there."""
    file = ROOT / path
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in found if node.name.startswith("test_")}


def rows() -> list[list[str]]:
    """The cells of the threat model, without its head."""
    table = TEXT.partition("\n## Threat model\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda each: each)
def test_a_test_that_is_named_is_there(path: str, name: str) -> None:
    assert name in names_in(path)


def test_every_row_says_who_what_and_which_tests_show_it() -> None:
    found = rows()

    assert len(found) > 10
    assert {len(row) for row in found} == {4}
    assert [row[1] for row in found if not all(row[1:3]) or "::" not in row[3]] == []


@pytest.mark.parametrize("who", ["Tenant", "Node", "Operator", "Author of a plugin", "Network"])
def test_everybody_who_may_harm_is_considered(who: str) -> None:
    assert any(row[0].startswith(f"**{who}") for row in rows())


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_it_is_found_from_the_front_pages(page: str) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / page).read_text(encoding="utf-8"))

    assert {"SECURITY.md", "security.md"} & set(links)


def test_it_says_where_to_report_and_what_is_supported() -> None:
    assert "private security advisory" in TEXT
    assert "\n## Supported versions\n" in TEXT
