"""Calls of functions: of the one overload that the checker has found, or of the first one that takes the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline.cel import costs
from gangline.cel.functions import BY_ID, FUNCTIONS
from gangline.cel.overloads import Overload
from gangline.cel.values import TooMuch, contains, no_overload, size_of

Run = Callable[[list[Any]], Any]


class Constant:
    """A closure whose value is known."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, frame: list[Any]) -> Any:
        return self.value


def spend(frame: list[Any], cost: int) -> None:
    """Adds to the cost of the evaluation. Raises TooMuch at the limit."""
    frame[0] += cost
    if frame[0] > costs.MOST_COST:
        raise TooMuch


def member(value: Run, items: list[Any]) -> Run:
    """The closure of `in` with a constant list, which costs nothing."""
    if not items:
        return Constant(False)
    if all(type(each) is str for each in items):
        texts = frozenset(items)

        def among(frame: list[Any]) -> Any:
            wanted = value(frame)
            return type(wanted) is str and wanted in texts

        return among
    if any(each is None or (size_of(each) != 1 and type(each) is not str) for each in items):
        return function("@in", BY_ID["in_list"], [value, Constant(items)])
    return lambda frame: contains(items, value(frame))


def chosen(name: str, values: list[Any]) -> Overload:
    """The first overload that takes the values. Raises ExpressionFailed."""
    for each in FUNCTIONS[name]:
        if each.takes(values):
            return each
    raise no_overload()


def function(name: str, exact: Overload | None, args: list[Run]) -> Run:
    """The closure of a call; `exact` is the overload if only one fits the types. Without it the values decide."""
    if exact is None:

        def dynamic(frame: list[Any]) -> Any:
            values = [each(frame) for each in args]
            overload = chosen(name, values)
            result = overload.run(*values)
            spend(frame, 1 if overload.cost is None or name in _PRICED_BY_ID else overload.cost(values, result))
            return result

        return dynamic
    takes, work, cost = exact.takes, exact.run, exact.cost

    def run(frame: list[Any]) -> Any:
        values = [each(frame) for each in args]
        if not takes(values):
            raise no_overload()
        result = work(*values)
        spend(frame, 1 if cost is None else cost(values, result))
        return result

    return run


_PRICED_BY_ID = frozenset(
    [
        "startsWith",
        "endsWith",
        "contains",
        "matches",
        "bytes",
        "string",
        "strings.quote",
        "format",
        "@in",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "_+_",
        "sort",
        "@sortByAssociatedKeys",
    ]
)
"""Functions whose cost Kubernetes knows by overload only: a call whose overload the values decide costs 1."""
