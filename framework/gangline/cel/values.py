"""The values of the language, how they compare, and what fails.

bool, int, float, str, bytes, None and list are Python's own; the other values have a class here. A `Map` keeps its
keys by kind, because 1, 1u, 1.0 and true are different keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from gangline.cel.kinds import TYPE_NAMES
from gangline.errors import ExpressionFailed

MOST_INT, LEAST_INT, MOST_UINT = 2**63 - 1, -(2**63), 2**64 - 1


class TooMuch(Exception):
    """An evaluation does or costs more than it may. Unlike ExpressionFailed, no operator absorbs this error."""


def no_overload() -> ExpressionFailed:
    """The error of a function that has no overload for the values."""
    return ExpressionFailed("no such overload")


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


class TypeValue:
    """A type as a value: two are equal when their names are."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Optional:
    """A value that may be absent, as in `NONE`."""

    __slots__ = ("has", "value")

    def __init__(self, value: Any, has: bool = True) -> None:
        self.value = value
        self.has = has

    def get(self) -> Any:
        """The value. Raises ExpressionFailed if it is absent or UNREADABLE."""
        if not self.has or self is UNREADABLE:
            raise ExpressionFailed("optional.none() dereference" if not self.has else "unsupported conversion")
        return self.value


UNREADABLE: Final = Optional(None)
"""The result of `?:` for an optional with a value of one of Kubernetes' own types: as upstream, the value is lost."""
NONE: Final = Optional(None, False)


def key_of(value: Any) -> Any:
    """The key under which a `Map` keeps a value."""
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind not in (bool, float, Uint, type(None)):
        raise ExpressionFailed(f"a value of type {type_name(value)} is no key of a map")
    return (kind.__name__, value)


class Map:
    """A map; `default` is the value under an absent key, or None if such a select fails."""

    __slots__ = ("default", "entries")

    def __init__(self, entries: dict[Any, Any], default: Any = None) -> None:
        self.entries = entries
        self.default = default

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Any]:
        return (key[-1] if type(key) is tuple else key for key in self.entries)

    def find(self, key: Any) -> tuple[Any, bool]:
        """The value under a key, and whether there is one. A number finds an equal number of another kind."""
        entries = self.entries
        if not entries:
            return None, False
        wanted = key_of(key)
        if wanted in entries:
            return entries[wanted], True
        for other in _alike(key):
            if other in entries:
                return entries[other], True
        return None, False


def _alike(key: Any) -> list[Any]:
    kind = type(key)
    if kind is float:
        if math.isfinite(key) and key == int(key):
            whole = int(key)
            near = [whole] if LEAST_INT < whole < MOST_INT else []
            return [*near, ("Uint", Uint(whole))] if 0 <= whole <= MOST_UINT else near
        return []
    if kind is int:
        return [("Uint", Uint(key))] if key >= 0 else []
    if kind is Uint:
        return [int(key)] if key <= MOST_INT else []
    return []


EMPTY_MAP: Final = Map({})

_NAMES: dict[type, str] = {bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes"}
_NAMES |= {type(None): "null_type", list: "list", Map: "map", TypeValue: "type", Optional: "optional_type"}


def name_type(kind: type, name: str) -> None:
    """Registers the name of the type of a class of values."""
    _NAMES[kind] = name


def type_name(value: Any) -> str:
    """The name of the type of a value."""
    return _NAMES[type(value)]


TYPE_VALUES: Final = {name: TypeValue(name) for name in TYPE_NAMES}


def is_number(value: Any) -> bool:
    """Whether the value is an int, an unsigned integer or a double."""
    kind = type(value)
    return kind is int or kind is float or kind is Uint


_STRICT: set[type] = set()
MOST_COMPARED = 1_000_000
"""Entries of lists and maps that one comparison looks at, at most."""


def strict(kind: type) -> None:
    """Registers a class of values whose comparison with a value of another type is an error."""
    _STRICT.add(kind)


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal. Values of different types are not equal; if `left` is of a `strict` class,
    ExpressionFailed is raised.
    """
    return _equal(left, right, [MOST_COMPARED])


def _equal(left: Any, right: Any, budget: list[int]) -> bool:
    kind = type(left)
    if kind is type(right):
        if kind is list or kind is Map:
            budget[0] -= len(left)
            if budget[0] < 0:
                raise TooMuch
            return _equal_lists(left, right, budget) if kind is list else _equal_maps(left, right, budget)
        if kind is Optional:
            return left.has == right.has and (not left.has or _equal(left.get(), right.get(), budget))
        if kind is TypeValue:
            return left.name == right.name
        return left == right
    if is_number(left) and is_number(right):
        return compared_numbers(left, right) == 0
    if kind in _STRICT and right is not None:
        raise no_overload()
    return False


def _equal_or_strict(left: Any, right: Any, budget: list[int]) -> bool:
    """Whether two entries of lists or maps count as equal: as upstream, entries that cannot be compared do."""
    try:
        return _equal(left, right, budget)
    except ExpressionFailed:
        return True


def _equal_lists(left: list[Any], right: list[Any], budget: list[int]) -> bool:
    return len(left) == len(right) and all(
        _equal_or_strict(one, other, budget) for one, other in zip(left, right, strict=True)
    )


def _equal_maps(left: Map, right: Map, budget: list[int]) -> bool:
    if len(left) != len(right):
        return False
    for key in left:
        value, found = right.find(key)
        if not found or not _equal_or_strict(left.find(key)[0], value, budget):
            return False
    return True


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal; values that cannot be compared are not equal."""
    try:
        return equal(left, right)
    except ExpressionFailed:
        return False


def compared_numbers(left: Any, right: Any) -> int | None:
    """-1, 0 or 1 for two numbers of any kinds; None if one is NaN. Beside a double, an integer counts as a double."""
    if type(left) is float or type(right) is float:
        if left != left or right != right:
            return None
        if type(left) is float and type(right) is not float:
            turned = _integer_and_double(right, left)
            return -turned
        if type(right) is float and type(left) is not float:
            return _integer_and_double(left, right)
    return (left > right) - (left < right)


def _integer_and_double(whole: Any, double: float) -> int:
    least, most = (0, MOST_UINT) if type(whole) is Uint else (LEAST_INT, MOST_INT)
    if double < float(least):
        return 1
    if double > float(most):
        return -1
    near = float(whole)
    return (near > double) - (near < double)


_ORDERED: dict[type, Any] = {}


def ordered(kind: type) -> None:
    """Registers a class of values that the relations order among themselves with Python's operators."""
    _ORDERED[kind] = True


for _kind in (bool, str, bytes):
    ordered(_kind)


def compared(left: Any, right: Any) -> int:
    """-1, 0 or 1. Raises ExpressionFailed for values without an order."""
    kind = type(left)
    if kind is type(right):
        if kind is int or kind is Uint:
            return (left > right) - (left < right)
        if kind in _ORDERED:
            return (left > right) - (left < right)
    if is_number(left) and is_number(right):
        result = compared_numbers(left, right)
        if result is None:
            raise ExpressionFailed("NaN values cannot be ordered")
        return result
    raise no_overload()


def comparable(value: Any) -> bool:
    """Whether <, <=, > and >= order values of this value's type."""
    return is_number(value) or type(value) in _ORDERED


def contains(items: list[Any], wanted: Any) -> bool:
    """Whether an entry of the list equals the value."""
    return any(same(wanted, each) for each in items)


def size_of(value: Any) -> int:
    """The size that costs are counted by: code points, bytes, entries; 1 for everything without a size."""
    kind = type(value)
    if kind is str or kind is list or kind is Map or kind is bytes:
        return len(value)
    if kind is Optional and value.has:
        return size_of(value.value)
    return getattr(value, "cost_size", 1)
