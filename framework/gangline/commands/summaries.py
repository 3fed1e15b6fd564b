"""Reads the summary of a command from its source, so that `gangline --help` imports no command."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import click

_SAYING = {"help", "short_help", "deprecated", "cls", None}
"""Arguments of click's decorators that may change the summary."""


def written_summary(name: str, where: str, most: int) -> str | None:
    """At most so many characters about the command at MODULE:FUNCTION, from the docstring of the function.

    None if the source is not there, or if the summary may be another one: then the command has to be imported.
    """
    module, _, function = where.partition(":")
    try:
        body = ast.parse(_source(module)).body
    except (ImportError, OSError, SyntaxError, ValueError):
        return None
    found = next((each for each in body if isinstance(each, ast.FunctionDef) and each.name == function), None)
    help = ast.get_docstring(found) if found is not None and _is_plain(found) else None
    return click.Command(name, help=help).get_short_help_str(most) if help else None


def _source(module: str) -> bytes:
    """The source of a module. Packages are not imported for it. Raises ImportError, OSError or ValueError."""
    top, *inner = module.split(".")
    spec = find_spec(top)
    if spec is not None and not inner:
        return Path(spec.origin or "").read_bytes()
    for folder in (spec and spec.submodule_search_locations) or ():
        place = Path(folder, *inner)
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file.read_bytes()
    raise ImportError(module)


def _is_plain(function: ast.FunctionDef) -> bool:
    """Whether nothing but the docstring says the summary: the outermost decorator is `command()` without a text."""
    first = function.decorator_list[0] if function.decorator_list else None
    if not isinstance(first, ast.Call):
        return False
    decorator = first.func.attr if isinstance(first.func, ast.Attribute) else getattr(first.func, "id", "")
    said = {each.arg for each in first.keywords}  # None stands for **options
    return decorator in ("command", "group") and said.isdisjoint(_SAYING)
