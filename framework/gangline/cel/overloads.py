"""One way to call a function: its signature, its work and its cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from gangline.cel.kinds import ANY, Type, parsed
from gangline.cel.values import Map, Optional, Uint, type_name

Cost = Callable[[Sequence[Any], Any], int]
"""Computes the cost of a call from its arguments and its result."""


_SIGNATURE = re.compile(r"(?:(?P<target>[^|]+)\|)?(?P<name>[^(]+)\((?P<args>.*)\) (?P<result>\S+)")
_EXACT: dict[str, type] = {"bool": bool, "int": int, "uint": Uint, "double": float, "string": str, "bytes": bytes}
_EXACT |= {"list": list, "map": Map}

Guard = Callable[[Any], bool] | None


class Overload:
    """`run` takes the target, if any, and the arguments; `cost` is None for a call that costs 1."""

    __slots__ = ("args", "cost", "guards", "id", "member", "name", "parameters", "result", "run")

    def __init__(
        self, id: str, signature: str, run: Callable[..., Any], cost: Cost | None = None, loose: bool = False
    ) -> None:
        """`signature` is `[TARGET|]NAME(ARGS) RESULT`. With `loose` the entries of lists and maps are not checked at
        run time. Raises ValueError for another signature.
        """
        match = _SIGNATURE.fullmatch(signature)
        if match is None:
            raise ValueError(signature)
        target = match["target"]
        texts = ([target] if target else []) + (match["args"].split("; ") if match["args"] else [])
        self.id = id
        self.name = match["name"]
        self.member = target is not None
        self.args: tuple[Type, ...] = tuple(map(parsed, texts))
        self.result = parsed(match["result"])
        self.parameters: set[Type] = set()
        for each in (*self.args, self.result):
            self.parameters |= _parameters(each)
        self.run = run
        self.cost = cost
        kept = [Type(each.kind, each.name, (ANY,) * len(each.params)) if loose else each for each in self.args]
        self.guards: tuple[Guard, ...] = tuple(map(guard, kept))

    def takes(self, values: Sequence[Any]) -> bool:
        """Whether the values are of the types that this overload takes."""
        if len(values) != len(self.guards):
            return False
        return all(each is None or each(value) for each, value in zip(self.guards, values, strict=True))


def _parameters(one: Type) -> set[Type]:
    return {one} if one.kind == "param" else set().union(*map(_parameters, one.params))


def guard(one: Type) -> Guard:
    """The test whether a value has a type; None if every value has it. Of lists and maps the first entry is tested."""
    if one.kind in ("param", "dyn", "any"):
        return None
    exact = _EXACT.get(one.kind)
    if one.kind in ("list", "map"):
        inner = [guard(each) for each in one.params]
        return _list_guard(inner[0]) if one.kind == "list" else _map_guard(inner[0], inner[1])
    if exact is not None:
        return lambda value: type(value) is exact
    if one.name == "optional_type":
        return lambda value: type(value) is Optional
    name = one.name or one.kind
    return lambda value: type_name(value) == name


def _list_guard(inner: Guard) -> Guard:
    if inner is None:
        return lambda value: type(value) is list
    return lambda value: type(value) is list and (not value or inner(value[0]))


def _map_guard(keys: Guard, values: Guard) -> Guard:
    def holds(value: Any) -> bool:
        if type(value) is not Map:
            return False
        if not value.entries:
            return True
        key = next(iter(value))
        return (keys is None or keys(key)) and (values is None or values(value.find(key)[0]))

    return holds
