"""Turns msgspec's errors about a value in a file into a ConfigError of one line."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from gangline.errors import ConfigError

_AT = re.compile(r"(?P<what>.*?)(?: - at `(?:key` in `)?\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_TYPE = re.compile(r"Expected `([^`]*)`, got `[^`]*`")
_RANGE = re.compile(r"Expected `[^`]*` (.+)")
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A hint for a misspelt name: the closest known names, or all known names if none is close."""
    close = get_close_matches(name, known, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known are {', '.join(sorted(known)) or 'none'}"


def quoted(value: object) -> str:
    """A value from a file on one line, as a file might have it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def explained(error: msgspec.ValidationError, file: str, path: str, data: object, type_: type) -> ConfigError:
    """The ConfigError for ``error``, raised on converting ``data`` at ``path`` to ``type_``."""
    match = _AT.fullmatch(str(error))
    what, inner = (match["what"], match["path"] or "") if match else (str(error), "")
    steps = [name or index for name, index in _STEP.findall(inner)]
    value, info = _at(steps, data, inspect.type_info(type_))
    here = (path + inner).removeprefix(".")
    if found := _UNKNOWN.fullmatch(what) or _MISSING.fullmatch(what):
        why = "required field is missing"
        if found.re is _UNKNOWN:
            why = f"unknown field; {_hint(found[1], info)}"
        return ConfigError(file, f"{here}.{found[1]}".removeprefix("."), why)
    return ConfigError(file, here, _why(what, value, info))


def _hint(name: str, info: inspect.Type | None) -> str:
    """A hint what to write instead of a field that the struct does not have."""
    if not isinstance(info, inspect.StructType):
        return did_you_mean(name, ())
    hints: Mapping[str, str] = getattr(info.cls, "hints", {})
    return hints.get(name) or did_you_mean(name, [known.encode_name for known in info.fields])


def _why(what: str, value: object, info: inspect.Type | None) -> str:
    """What is wrong with one value."""
    if found := _TYPE.fullmatch(what):
        names = [name for name in found[1].split(" | ") if name != "null"]
        wanted = " or ".join(_WORDS.get(name, name) for name in names)
        return f"expected {wanted}, got {quoted(value)}"
    if found := _RANGE.fullmatch(what):
        return f"must be {found[1]}, got {quoted(value)}"
    if what.startswith("Invalid enum value"):
        return f"must be one of {', '.join(_allowed(info))}, got {quoted(value)}"
    return what if isinstance(value, dict | list) else f"{what}, got {quoted(value)}"


def _allowed(info: inspect.Type | None) -> list[str]:
    if isinstance(info, inspect.LiteralType):
        return [str(value) for value in info.values]
    if isinstance(info, inspect.EnumType):
        return [str(member.value) for member in info.cls]
    return []


def _at(steps: list[str], data: Any, info: inspect.Type | None) -> tuple[object, inspect.Type | None]:
    """The value and the type at the path ``steps``, or at the last step that can be followed."""
    info = _unwrapped(info)
    for step in steps:
        if isinstance(info, inspect.StructType):
            info = next((f.type for f in info.fields if f.encode_name == step), None)
        elif isinstance(info, inspect.ListType | inspect.VarTupleType):
            info = info.item_type
        elif isinstance(info, inspect.DictType):
            info = info.value_type
        else:
            info = None
        info = _unwrapped(info)
        if isinstance(data, list):
            data = data[int(step)]
        elif isinstance(data, dict):
            data = data.get(step)
    return data, info


def _unwrapped(info: inspect.Type | None) -> inspect.Type | None:
    """The type without constraints, and without the null of ``X | None``."""
    if isinstance(info, inspect.Metadata):
        return _unwrapped(info.type)
    if isinstance(info, inspect.UnionType):
        others = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        return _unwrapped(others[0]) if len(others) == 1 else None
    return info
