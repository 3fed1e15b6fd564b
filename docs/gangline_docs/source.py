"""Reads docstrings that Python does not keep: those below the fields of a class and the constants of a module."""

from __future__ import annotations

import ast
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
        found |= {name: text for name, _, text in _documented(body.body)}
    return found


def constants(module: ModuleType) -> list[Constant]:
    """The public text constants that a module defines, in its order."""
    found = _documented(_body(module))
    return [Constant(name, value, text) for name, value, text in found if value and name.isupper()]


def module_docs(module: ModuleType) -> dict[str, str]:
    """The docstrings below what a module assigns, by name."""
    return {name: text for name, _, text in _documented(_body(module))}


def _body(module: ModuleType) -> list[ast.stmt]:
    assert module.__file__ is not None, f"{module.__name__} has no source"
    return ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    """Each assignment to a name: the name, its value if that is text, and the docstring below it."""
    for statement, below in zip(body, [*body[1:], None], strict=True):
        targets: list[ast.expr]
        if isinstance(statement, ast.AnnAssign):
            targets, value = [statement.target], statement.value
        elif isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        else:
            continue
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
            yield targets[0].id, _text(value), _text(below.value) if isinstance(below, ast.Expr) else ""


def _text(expression: ast.expr | None) -> str:
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return inspect.cleandoc(expression.value)
    return ""
