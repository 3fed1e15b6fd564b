"""Every function of the dialect, by name."""

from __future__ import annotations

from typing import Any

from gangline.cel import arithmetic, lists, named_formats, network, quantities, regexes, semvers, texts, times, urls
from gangline.cel.overloads import Overload
from gangline.cel.times import Duration
from gangline.cel.values import NONE, Map, Optional, Uint
from gangline.errors import ExpressionFailed


def _value(one: Optional) -> Any:
    return one.get()


def _of_non_zero(value: Any) -> Optional:
    kind = type(value)
    empty = value is None or (kind in (str, bytes, list, Map) and not len(value))
    zero = kind in (bool, int, Uint, float) and value == 0
    return NONE if empty or zero or (isinstance(value, Duration) and value.ns == 0) else Optional(value)


def _unwrap(items: list[Any]) -> list[Any]:
    if any(type(each) is not Optional for each in items):
        raise ExpressionFailed("a value that is not optional")
    return [each.value for each in items if each.has]


def _planned(*_: Any) -> Any:
    """Never called: the planner makes a closure of its own for this function."""
    raise NotImplementedError


_OPTIONALS = [
    Overload("optional_of", "optional.of(V) optional<V>", Optional),
    Overload("optional_ofNonZeroValue", "optional.ofNonZeroValue(V) optional<V>", _of_non_zero),
    Overload("optional_none", "optional.none() optional<V>", lambda: NONE),
    Overload("optional_value", "optional<V>|value() V", _value),
    Overload("optional_hasValue", "optional<V>|hasValue() bool", lambda one: one.has),
    Overload("optional_or_optional", "optional<V>|or(optional<V>) optional<V>", _planned),
    Overload("optional_orValue_value", "optional<V>|orValue(V) V", _planned),
    Overload("list_last", "list<V>|last() optional<V>", lambda items: Optional(items[-1]) if items else NONE),
    Overload("list_first", "list<V>|first() optional<V>", lambda items: Optional(items[0]) if items else NONE),
    Overload("optional_unwrap", "optional.unwrap(list<optional<V>>) list<V>", _unwrap),
    Overload("optional_unwrapOpt", "list<optional<V>>|unwrapOpt() list<V>", _unwrap),
]
_PLANNED = [
    Overload("conditional", "_?_:_(bool; A; A) A", _planned),
    Overload("not_strictly_false", "@not_strictly_false(bool) bool", _planned),
    Overload("equals", "_==_(A; A) bool", _planned),
    Overload("not_equals", "_!=_(A; A) bool", _planned),
    Overload("index_list", "_[_](list<A>; int) A", _planned),
    Overload("index_map", "_[_](map<A,B>; A) B", _planned),
    Overload("optional_list_index_int", "_[_](optional<list<V>>; int) optional<V>", _planned),
    Overload("optional_map_index_value", "_[_](optional<map<K,V>>; K) optional<V>", _planned),
    Overload("list_optindex_optional_int", "_[?_](list<V>; int) optional<V>", _planned),
    Overload("optional_list_optindex_optional_int", "_[?_](optional<list<V>>; int) optional<V>", _planned),
    Overload("map_optindex_optional_value", "_[?_](map<K,V>; K) optional<V>", _planned),
    Overload("optional_map_optindex_optional_value", "_[?_](optional<map<K,V>>; K) optional<V>", _planned),
]


def _gathered() -> dict[str, list[Overload]]:
    found: dict[str, list[Overload]] = {}
    rooms = (arithmetic, times, texts, regexes, lists, quantities, semvers, network, urls, named_formats)
    for each in [*_PLANNED, *_OPTIONALS, *(one for room in rooms for one in room.OVERLOADS)]:
        found.setdefault(each.name, []).append(each)
    return found


WITHOUT_LISTS = _gathered()
"""The functions of expressions for devices without attributes that are lists (DRAListTypeAttributes is off)."""
FUNCTIONS = WITHOUT_LISTS | {each.name: [each] for each in lists.OF_ATTRIBUTES}
BY_ID = {each.id: each for group in FUNCTIONS.values() for each in group}
CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
"""Functions that are called at compile time if their argument is a constant."""
