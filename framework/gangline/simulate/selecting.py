"""Label and field selectors of a URL, compiled to a test on an object's JSON data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gangline.model import LabelSelector, Requirement
from gangline.simulate.history import Matches
from gangline.simulate.refusals import bad_request
from gangline.state.selectors import EVERYTHING, Selector, compile_selector

_KEY = r"(?P<key>[\w./-]+)"
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!,()\s]*)")
_EXISTS = re.compile(rf"(?P<absent>!?)\s*{_KEY}")
_COMMA = re.compile(r",(?![^()]*\))")


def compiled(namespace: str | None, label_selector: str, field_selector: str) -> Matches | None:
    """A test whether a selector matches an object; None if it matches all. Raises Invalid for an invalid selector."""
    labels = label_requirements(label_selector)
    fields = field_requirements(field_selector)
    if not namespace and labels is EVERYTHING and not fields:
        return None

    def matches(data: Mapping[str, Any]) -> bool:
        metadata = data["metadata"]
        if namespace and metadata.get("namespace") != namespace:
            return False
        if not all((_field(data, path) == value) is equal for path, equal, value in fields):
            return False
        return labels is EVERYTHING or labels.matches(metadata.get("labels") or {})

    return matches


@lru_cache(maxsize=256)
def label_requirements(selector: str) -> Selector:
    """``a=b,c!=d,e in (f,g),h notin (i),j,!k``, compiled."""
    if not selector.strip():
        return EVERYTHING
    requirements = [_requirement(part.strip(), selector) for part in _COMMA.split(selector)]
    return compile_selector(LabelSelector(match_expressions=requirements))


@lru_cache(maxsize=256)
def field_requirements(selector: str) -> tuple[tuple[tuple[str, ...], bool, str], ...]:
    """``a.b=c,d!=e`` as path, whether it has to be equal, and the text to compare with."""
    found = []
    for part in filter(None, (part.strip() for part in selector.split(","))):
        match = _EQUALITY.fullmatch(part)
        if match is None:
            raise bad_request(f'unable to parse field selector "{selector}": "{part}" is not PATH=VALUE or PATH!=VALUE')
        found.append((tuple(match["key"].split(".")), match["operator"] != "!=", match["value"]))
    return tuple(found)


def _requirement(part: str, selector: str) -> Requirement:
    if match := _SET.fullmatch(part):
        values = [value.strip() for value in match["values"].split(",")]
        return Requirement(match["key"], "In" if match["operator"] == "in" else "NotIn", values)
    if match := _EQUALITY.fullmatch(part):
        return Requirement(match["key"], "NotIn" if match["operator"] == "!=" else "In", [match["value"]])
    if match := _EXISTS.fullmatch(part):
        return Requirement(match["key"], "DoesNotExist" if match["absent"] else "Exists")
    raise bad_request(f'unable to parse label selector "{selector}": "{part}" is not a requirement')


def _field(data: Mapping[str, Any], path: tuple[str, ...]) -> str:
    """The text of a field; empty when it is not set."""
    value: Any = data
    for step in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(step)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
