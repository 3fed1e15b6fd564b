"""Chains of selects and indexes: `a.b[c].?d`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from gangline.cel.values import LEAST_INT, MOST_INT, NONE, Map, Optional, Uint
from gangline.errors import ExpressionFailed

Run = Callable[[list[Any]], Any]

DEVICE_SLOTS = {"driver": 1, "allowMultipleAllocations": 2, "attributes": 3, "capacity": 4}
"""By field of the device: its index in a frame."""
FIRST_VARIABLE = 5


def device_map(frame: list[Any]) -> Map:
    """The device of a frame as one value, for expressions that use `device` itself."""
    return Map({name: frame[slot] for name, slot in DEVICE_SLOTS.items()})


class PathStep:
    """One select or index: `name` is the key, or `key` computes it."""

    KEYS: ClassVar = frozenset({str, int, Uint, bool, float})
    __slots__ = ("key", "name", "optional")

    def __init__(self, name: Any, key: Run | None, optional: bool) -> None:
        self.name = name
        self.key = key
        self.optional = optional


def chain(base: Run, steps: list[PathStep], cost: int, test: bool) -> Run:
    """The closure of a chain. A chain costs `cost`, and 1 for each step. With `test` the closure returns whether the
    last key exists.
    """
    cost += len(steps)
    if not test and not any(step.optional or step.key is not None for step in steps):
        return _plain(base, [step.name for step in steps], cost)
    return _general(base, steps, cost, test)


def _plain(base: Run, names: list[Any], cost: int) -> Run:
    def run(frame: list[Any]) -> Any:
        frame[0] += cost
        value = base(frame)
        if type(value) is Optional:
            for name in names:
                value = _next(value, name)
            return value
        for name in names:
            if type(value) is Map and type(name) is str:
                found = value.entries.get(name, value.default)
                if found is None and name not in value.entries:
                    raise ExpressionFailed(f"no such key: {name}")
                value = found
            else:
                found, present = look_up(value, name)
                if not present:
                    raise _lacks(value, name)
                value = found
        return value

    return run


def _next(value: Any, name: Any) -> Any:
    if not value.has:
        return NONE
    found, present = look_up(value.get(), name, soft=True)
    return Optional(found) if present else NONE


def _general(base: Run, steps: list[PathStep], cost: int, test: bool) -> Run:
    last = steps[-1]
    own = cost - len(steps)

    def run(frame: list[Any]) -> Any:
        frame[0] += own
        value = base(frame)
        wrapped = type(value) is Optional
        if wrapped:
            if not value.has:
                return False if test else NONE
            value = value.get()
        for step in steps:
            key = step.name if step.key is None else step.key(frame)
            if type(key) not in PathStep.KEYS:
                raise ExpressionFailed("no key of a list or map")
            wrapped = wrapped or step.optional
            soft = wrapped or (test and step is last)
            found, present = look_up(value, key, soft)
            if present or (test and step is last):
                frame[0] += 1
            if not present:
                if test and step is last:
                    return False
                if wrapped:
                    return False if test else NONE
                raise _lacks(value, key)
            value = found
        if test:
            return True
        return Optional(value) if wrapped else value

    return run


def _lacks(value: Any, key: Any) -> ExpressionFailed:
    return ExpressionFailed(f"index out of bounds: {key}" if type(value) is list else f"no such key: {key}")


def look_up(value: Any, key: Any, soft: bool = False) -> tuple[Any, bool]:
    """The value under a key, and whether there is one. Raises ExpressionFailed for a value that has no keys, unless
    `soft`.
    """
    kind = type(value)
    if kind is Map:
        found, present = value.find(key)
        if not present and value.default is not None:
            return value.default, True
        return found, present
    if kind is list:
        place = _place(key)
        return (value[place], True) if 0 <= place < len(value) else (None, False)
    if not soft:
        raise ExpressionFailed(f"no such key: {key}")
    return None, False


def _place(key: Any) -> int:
    kind = type(key)
    if kind is int or (kind is Uint and key <= MOST_INT):
        return int(key)
    if kind is float and math.isfinite(key) and key == int(key) and LEAST_INT < key < MOST_INT:
        return int(key)
    raise ExpressionFailed("unsupported index value")
