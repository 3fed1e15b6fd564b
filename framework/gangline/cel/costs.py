"""The costs of calls at run time, in the units of Kubernetes, so that the limit stops the same expressions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from gangline.cel.overloads import Cost
from gangline.cel.values import Map, size_of

MOST_COST = 1_000_000
"""The limit of Kubernetes for one selector on one device."""

_PER_CHARACTER = 0.1
_PER_REGEX_CHARACTER = 0.25
NEW_LIST = 10
NEW_MAP = 30


def traverses(times: int = 1) -> Cost:
    """The first argument is read from end to end, `times` times."""
    return lambda args, _: ceil(size_of(args[0]) * times * _PER_CHARACTER)


def builds(args: Sequence[Any], result: Any) -> int:
    """The result is written twice."""
    return ceil(size_of(result) * 2 * _PER_CHARACTER)


def shorter(args: Sequence[Any], _: Any) -> int:
    """Two values are compared."""
    return ceil(min(size_of(args[0]), size_of(args[1])) * _PER_CHARACTER)


def both(args: Sequence[Any], _: Any) -> int:
    """Two values are copied."""
    return ceil((size_of(args[0]) + size_of(args[1])) * _PER_CHARACTER)


def searches(args: Sequence[Any], _: Any) -> int:
    """A text is searched for another."""
    return ceil(size_of(args[0]) * _PER_CHARACTER) * ceil(size_of(args[1]) * _PER_CHARACTER)


def regex_cost(text: Any, pattern_size: int) -> int:
    """A text is searched for a regular expression of a length."""
    return ceil((1.0 + size_of(text)) * _PER_CHARACTER) * ceil(pattern_size * _PER_REGEX_CHARACTER)


def matches(args: Sequence[Any], _: Any) -> int:
    """A text is searched for a regular expression."""
    return regex_cost(args[0], size_of(args[1]))


def scans(args: Sequence[Any], _: Any) -> int:
    """Every value within the first argument is looked at."""
    return _scanned(args[0])


def _scanned(value: Any) -> int:
    kind = type(value)
    if kind is str:
        return int(len(value.encode("utf-8", "surrogatepass")) * _PER_CHARACTER)
    if kind is bytes:
        return int(len(value) * _PER_CHARACTER)
    if kind is list:
        return sum(map(_scanned, value))
    if kind is Map:
        return sum(_scanned(key) + _scanned(value.find(key)[0]) for key in value)
    return 1


def list_length(args: Sequence[Any], _: Any) -> int:
    """A list is searched."""
    return size_of(args[1])


def makes_list(args: Sequence[Any], result: Any) -> int:
    """A list is made."""
    return size_of(result) + 1 + NEW_LIST


def flattens(args: Sequence[Any], _: Any) -> int:
    """The lists within a list become part of it."""
    depth = float(args[1]) if len(args) == 2 else 1.0
    return max(0, int(size_of(args[0]) * depth)) + 1 + NEW_LIST


def compares_all(position: int) -> Cost:
    """Each entry of a list meets each other one."""

    def cost(args: Sequence[Any], _: Any) -> int:
        items = args[position]
        factor = 2.0 + (_PER_CHARACTER if items and type(items[0]) in (str, bytes) else 0.0)
        return int(len(items) ** 2 * factor) + 1 + NEW_LIST

    return cost


def pairs(factor: float) -> Cost:
    """Each entry of one list meets each of another."""
    return lambda args, _: 1 + int(size_of(args[0]) * size_of(args[1]) * factor)


def contains_address(also_text: bool, within_network: bool) -> Cost:
    """A network is compared with an address, or with another network."""

    def cost(args: Sequence[Any], _: Any) -> int:
        network = size_of(args[0])
        total = ceil((network + network) * _PER_CHARACTER)
        if within_network:
            total += ceil(network * _PER_CHARACTER) + 1
        return total + (ceil(size_of(args[1]) * _PER_CHARACTER) if also_text else 0)

    return cost
