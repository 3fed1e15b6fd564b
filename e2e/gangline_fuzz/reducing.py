"""Makes a case that fails smaller, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from gangline_fuzz.inputs import Case, Input, Several, Write

T = TypeVar("T")
Fails = Callable[[Case], bool]


def reduced(case: Case, fails: Fails, tries: int) -> Case:
    """The smallest case that was found with so many tries; every one plays a cluster."""
    left = tries
    while left > 0:
        for smaller in _smaller(case):
            left -= 1
            if fails(smaller):
                case = smaller
                break
            if left <= 0:
                return case
        else:
            return case
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with less in them, those with much less first."""
    for inputs in _shorter(case.inputs):
        yield msgspec.structs.replace(case, inputs=inputs)
    for at, each in enumerate(case.inputs):
        for other in _simpler(each):
            yield msgspec.structs.replace(case, inputs=[*case.inputs[:at], other, *case.inputs[at + 1 :]])


def _shorter(values: list[T]) -> Iterator[list[T]]:
    """Without halves, quarters, and so on down to single ones."""
    size = len(values)
    piece = size // 2 if size > 1 else 0
    while piece:
        for start in range(0, size, piece):
            yield [*values[:start], *values[start + piece :]]
        piece //= 2


def _simpler(each: Input) -> Iterator[Input]:
    if isinstance(each, Several):
        for inputs in _shorter(each.inputs):
            yield Several(inputs)
        for at, one in enumerate(each.inputs):
            for other in _simpler(one):
                if isinstance(other, Write):
                    yield Several([*each.inputs[:at], other, *each.inputs[at + 1 :]])
    elif isinstance(each, Write):
        if each.damage is not None:
            yield msgspec.structs.replace(each, damage=None)
        for data in _less(each.object):
            yield msgspec.structs.replace(each, object=data)


def _less(data: Any) -> Iterator[Any]:
    """The data without one of its parts, those at the top first."""
    if isinstance(data, dict):
        if len(data) == 1 and next(iter(data))[:1] == "@":
            return
        for key in data:
            yield {other: value for other, value in data.items() if other != key}
        for key, value in data.items():
            for less in _less(value):
                yield {**data, key: less}
    elif isinstance(data, list):
        yield from _shorter(data)
        if len(data) == 1:
            yield []
        for at, value in enumerate(data):
            for less in _less(value):
                yield [*data[:at], less, *data[at + 1 :]]
