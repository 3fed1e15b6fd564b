"""Writes JSON that no encoder would write, from data that is small, readable and can itself be kept as JSON.

An object with one key that begins with "@" stands for a text:

    {"@digits": 5000}          a number of so many digits
    {"@deep": 3000}            lists in lists, so deep
    {"@deep-objects": 3000}    objects in objects, so deep
    {"@nested-text": 3000}     the same as a string
    {"@digits-text": 5000}     digits as a string
    {"@string": [300, "x"]}    a string repeated
    {"@keys": 10000}           an object with so many keys
    {"@items": [5000, {}]}     a list with so many times the same element
    {"@twice": {"a": 1}}       an object with every key twice, the second time with null
    {"@raw": "NaN"}            this very text
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Data = Any
"""JSON data, with or without what stands for texts."""

_SPECIAL: dict[str, Callable[[Any], str]] = {
    "@digits": lambda number: "9" * number,
    "@deep": lambda depth: "[" * depth + "]" * depth,
    "@deep-objects": lambda depth: '{"a":' * depth + "1" + "}" * depth,
    "@nested-text": lambda depth: json.dumps("[" * depth + "]" * depth),
    "@digits-text": lambda number: json.dumps("9" * number),
    "@string": lambda what: json.dumps(what[1] * what[0]),
    "@keys": lambda number: "{" + ",".join(f'"key-{n}":"{n}"' for n in range(number)) + "}",
    "@items": lambda what: "[" + ",".join([written(what[1])] * what[0]) + "]",
    "@twice": lambda what: "{" + ",".join([*_members(what), *(f"{json.dumps(key)}:null" for key in what)]) + "}",
    "@raw": lambda text: text,
}


def written(data: Data) -> str:
    """The text of some data; lone surrogates are escaped."""
    if isinstance(data, dict):
        if (special := _special(data)) is not None:
            return special(next(iter(data.values())))
        return "{" + ",".join(_members(data)) + "}"
    if isinstance(data, list):
        return "[" + ",".join(written(each) for each in data) + "]"
    return json.dumps(data)


def plain(data: Data) -> Data:
    """The data as somebody who reads JSON leniently has it; texts that nobody can read become null."""
    if isinstance(data, dict):
        if _special(data) is not None:
            return _read(written(data))
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain(each) for each in data]
    return data


def _special(data: dict[str, Any]) -> Callable[[Any], str] | None:
    return _SPECIAL.get(next(iter(data))) if len(data) == 1 else None


def _members(data: dict[str, Any]) -> list[str]:
    return [f"{json.dumps(key)}:{written(value)}" for key, value in data.items()]


def _read(text: str) -> Data:
    try:
        found = json.loads(text, parse_constant=lambda _: None)
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return found
