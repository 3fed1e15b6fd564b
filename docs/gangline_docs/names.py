"""The page of annotations, labels and resource names, from `gangline.wire`."""

from __future__ import annotations

import re

from gangline import wire
from gangline_docs.markdown import code, page, prose, table
from gangline_docs.source import Constant, constants

_OBJECT = re.compile(r"((?:On|As) [^:]+): (.+)", re.DOTALL)


def names() -> list[Constant]:
    """Every name that the components share, in the order of the code."""
    return [each for each in constants(wire) if not each.name.startswith("_") and _is_name(each.value)]


def render() -> str:
    """The page."""
    on: dict[str, list[tuple[str, str]]] = {}
    for each in names():
        found = _OBJECT.fullmatch(each.meaning)
        where, meaning = (found[1], found[2]) if found else ("Other names", each.meaning)
        on.setdefault(where, []).append((code(each.value), prose(_sentence(meaning))))
    rest = on.pop("Other names", [])
    parts = [_section(where, rows) for where, rows in on.items()]
    parts += [_section("Other names", rest)] if rest else []
    summary = (
        "Annotations, labels and resources that Gangline reads or writes, by the object that carries them. "
        "Names of other schedulers that it understands too are under [migration](../migration.md)."
    )
    return page("Annotations and labels", summary, *parts)


def _section(title: str, rows: list[tuple[str, str]]) -> str:
    return f"## {title}\n\n" + table(("Name", "Meaning"), rows)


def _is_name(value: str) -> bool:
    """A name has a prefix or dashes; API groups and versions have not."""
    return "/" in value or "-" in value


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
