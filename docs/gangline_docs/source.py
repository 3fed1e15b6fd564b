"""Reads docstrings that Python does not keep: those below the fields of a class and the constants of a module."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a module whose value is text."""

    name: str
    value: str
    meaning: str


@cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstrings of a class's fields by name, inherited ones too."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.partition(".")[0] in ("builtins", "msgspec", "typing"):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
        body = tree.body[0]
        assert isinstance(body, ast.ClassDef), f"{each} has the source of no class"
        found |= dict(_documented(body.body))
    return found


def constants(module: ModuleType) -> list[Constant]:
    """The public text constants that a module defines, in its order."""
    found = ((name, getattr(module, name), text) for name, text in _documented(_body(module)))
    return [Constant(*each) for each in found if _is_public(each[0]) and isinstance(each[1], str)]


def sections(module: ModuleType) -> dict[str, list[Constant]]:
    """The text constants of a module under the comments that head them."""
    known = {each.name: each for each in constants(module)}
    found: dict[str, list[Constant]] = {}
    title = ""
    for line in _source(module).splitlines():
        if line.startswith("# "):
            title = line.removeprefix("# ")
        elif (name := line.partition(" ")[0]) in known:
            found.setdefault(title, []).append(known[name])
    return found


def constant_doc(module: ModuleType, name: str) -> str:
    """What stands below a constant where it is assigned, however often it was imported on the way to this module."""
    for statement in _body(module):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            for each in statement.names:
                if (each.asname or each.name) == name:
                    return constant_doc(importlib.import_module(statement.module), each.name)
    return dict(_documented(_body(module))).get(name, "")


def _body(module: ModuleType) -> list[ast.stmt]:
    return ast.parse(_source(module)).body


def _source(module: ModuleType) -> str:
    assert module.__file__ is not None, f"{module.__name__} has no source"
    return Path(module.__file__).read_text(encoding="utf-8")


def _is_public(name: str) -> bool:
    return name.isupper() and not name.startswith("_")


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Each name that is assigned to, and the docstring below it."""
    for statement, below in zip(body, [*body[1:], None], strict=True):
        targets: list[ast.expr] = []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
            yield targets[0].id, _text(below.value) if isinstance(below, ast.Expr) else ""


def _text(expression: ast.expr) -> str:
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return inspect.cleandoc(expression.value)
    return ""
