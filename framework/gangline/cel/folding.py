"""Loops of macros, and the variables that they bind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gangline.cel.values import Map
from gangline.errors import ExpressionFailed

Run = Callable[[list[Any]], Any]

UNSET: Final = object()
"""The content of an accumulator's slot before the accumulator is first read."""


class _Failed:
    __slots__ = ("why",)

    def __init__(self, why: ExpressionFailed) -> None:
        self.why = why


def variable(slot: int, init: Run) -> Run:
    """The closure that reads an accumulator. Its first value is computed when it is first read, so the value of an
    accumulator that nobody reads cannot fail.
    """

    def read(frame: list[Any]) -> Any:
        value = frame[slot]
        if value is UNSET:
            value = init(frame)
            if type(value) is list:
                value = value.copy()
            elif type(value) is Map:
                value = Map(dict(value.entries), value.default)
            frame[slot] = value
        elif type(value) is _Failed:
            raise value.why
        return value

    return read


def fold(
    over: Run, slots: tuple[int, int, int], pairs: bool, condition: Run | None, step: Run | None, result: Run
) -> Run:
    """The closure of a loop over `over` that returns `result`. `slots` are those of the accumulator and of the two
    variables; with `pairs` the second variable gets the value of an entry.

    Without a `step` the closure only binds the accumulator; without a `condition` a failure of the step ends the loop.
    """
    accumulator, first, second = slots

    def run(frame: list[Any]) -> Any:
        if step is None:
            frame[accumulator] = UNSET
            return result(frame)
        entries = _entries(over(frame), pairs)
        frame[accumulator] = UNSET
        for frame[first], frame[second] in entries:
            if condition is not None and not condition(frame):
                break
            try:
                frame[accumulator] = step(frame)
            except ExpressionFailed as failure:
                if condition is None:
                    raise
                frame[accumulator] = _Failed(failure)
        return result(frame)

    return run


def _entries(value: Any, pairs: bool) -> Iterator[tuple[Any, Any]]:
    kind = type(value)
    if kind is list:
        return iter(enumerate(value)) if pairs else ((each, None) for each in value)
    if kind is Map:
        return ((key, value.find(key)[0]) for key in value) if pairs else ((key, None) for key in value)
    raise ExpressionFailed("nothing to loop over")
