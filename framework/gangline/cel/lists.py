"""Functions on lists, sets and maps that are built entry by entry."""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from gangline.cel import costs
from gangline.cel.arithmetic import MOST_LENGTH, add, bounded
from gangline.cel.overloads import Overload
from gangline.cel.times import Duration
from gangline.cel.values import Map, Uint, comparable, compared, contains, key_of, no_overload, same, type_name
from gangline.errors import ExpressionFailed

MOST_INCLUDING = 48
"""Entries of a list that `includes` looks at, at most: as many values as the attributes of a device may have."""
_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZERO: dict[str, Any] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0 or start > end or len(items) < end:
        raise ExpressionFailed(f"cannot slice({start}, {end}) of {len(items)} entries")
    return items[start:end]


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise ExpressionFailed("level must be non-negative")
    for _ in range(depth):
        if not any(type(each) is list for each in items):
            break
        flat: list[Any] = []
        for each in items:
            if type(each) is list:
                flat.extend(each)
            else:
                flat.append(each)
        items = bounded(flat)
    return items


def _sort(items: list[Any], keys: list[Any] | None = None) -> list[Any]:
    keys = items if keys is None else keys
    if len(items) != len(keys):
        raise ExpressionFailed(f"{len(items)} entries and {len(keys)} keys")
    if not items:
        return items
    if not comparable(keys[0]):
        raise ExpressionFailed("list elements must be comparable")
    if any(type_name(each) != type_name(keys[0]) for each in keys) and len(keys) > 1:
        raise ExpressionFailed("list elements must have the same type")

    def order(one: int, other: int) -> int:
        try:
            return compared(keys[one], keys[other])
        except ExpressionFailed:
            return 0

    return [items[i] for i in sorted(range(len(items)), key=cmp_to_key(order))]


def _range(count: int) -> list[int]:
    if count > MOST_LENGTH:
        raise ExpressionFailed("the list would be too long")
    return list(range(count))


def _distinct(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for each in items:
        if not contains(kept, each):
            kept.append(each)
    return kept


def _includes(target: Any, wanted: Any) -> bool:
    if type(target) is not list:
        return same(target, wanted)
    if any(same(each, wanted) for each in target[:MOST_INCLUDING]):
        return True
    if len(target) > MOST_INCLUDING:
        raise ExpressionFailed(f"'includes' function cannot be applied to lists longer than {MOST_INCLUDING} values")
    return False


def _is_sorted(items: list[Any]) -> bool:
    for each in items:
        if not comparable(each):
            raise no_overload()
    for one, other in pairwise(items):
        try:
            if compared(one, other) > 0:
                return False
        except ExpressionFailed:
            continue
    return True


def _sum(kind: str) -> Any:
    def run(items: list[Any]) -> Any:
        total = _ZERO[kind]
        for each in items:
            total = add(total, each)
        return total

    return run


def _extreme(sign: int) -> Any:
    def run(items: list[Any]) -> Any:
        if not items:
            raise ExpressionFailed("called on empty list")
        best = items[0]
        if not comparable(best):
            raise no_overload()
        for each in items[1:]:
            if not comparable(each):
                raise no_overload()
            try:
                better = compared(best, each) == sign
            except ExpressionFailed:
                better = False
            best = each if better else best
        return best

    return run


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((i for i, each in enumerate(items) if same(each, wanted)), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next((i for i in range(len(items) - 1, -1, -1) if same(items[i], wanted)), -1)


def _holds(items: list[Any], wanted: list[Any]) -> bool:
    return all(contains(items, each) for each in wanted)


def _insert(within: Map, key: Any, value: Any) -> Map:
    if within.find(key)[1]:
        raise ExpressionFailed("insert failed: the key already exists")
    return Map({**within.entries, key_of(key): value})


def _insert_all(within: Map, more: Map) -> Map:
    for key in more:
        within = _insert(within, key, more.find(key)[0])
    return within


OVERLOADS = [
    *(Overload(f"list_{k}_is_sorted_bool", f"list<{k}>|isSorted() bool", _is_sorted, costs.scans) for k in _COMPARABLE),
    *(Overload(f"list_{k}_sum_{k}", f"list<{k}>|sum() {k}", _sum(k), costs.scans) for k in _ZERO),
    *(Overload(f"list_{k}_max_{k}", f"list<{k}>|max() {k}", _extreme(-1), costs.scans) for k in _COMPARABLE),
    *(Overload(f"list_{k}_min_{k}", f"list<{k}>|min() {k}", _extreme(1), costs.scans) for k in _COMPARABLE),
    Overload("list_a_index_of_int", "list<A>|indexOf(A) int", _index_of, costs.scans),
    Overload("list_a_last_index_of_int", "list<A>|lastIndexOf(A) int", _last_index_of, costs.scans),
    Overload("list_slice", "list<T>|slice(int; int) list<T>", _slice, costs.makes_list),
    Overload("list_flatten", "list<list<T>>|flatten() list<T>", _flatten, costs.flattens, loose=True),
    Overload("list_flatten_int", "list<dyn>|flatten(int) list<dyn>", _flatten, costs.flattens),
    *(Overload(f"list_{k}_sort", f"list<{k}>|sort() list<{k}>", _sort, costs.compares_all(0)) for k in _COMPARABLE),
    *(
        Overload(f"list_{k}_sort_by", f"list<T>|@sortByAssociatedKeys(list<{k}>) list<T>", _sort, costs.compares_all(1))
        for k in _COMPARABLE
    ),
    Overload("lists_range", "lists.range(int) list<int>", _range, costs.makes_list),
    Overload("list_reverse", "list<T>|reverse() list<T>", lambda items: items[::-1], costs.makes_list),
    Overload("list_distinct", "list<T>|distinct() list<T>", _distinct, costs.compares_all(0)),
    Overload("list_sets_contains_list", "sets.contains(list<T>; list<T>) bool", _holds, costs.pairs(1)),
    Overload(
        "list_sets_equivalent_list",
        "sets.equivalent(list<T>; list<T>) bool",
        lambda one, other: _holds(one, other) and _holds(other, one),
        costs.pairs(2),
    ),
    Overload(
        "list_sets_intersects_list",
        "sets.intersects(list<T>; list<T>) bool",
        lambda one, other: any(contains(other, each) for each in one),
        costs.pairs(1),
    ),
    Overload("map_insert_key", "cel.@mapInsert(map<K,V>; K; V) map<K,V>", _insert),
    Overload("map_insert_map", "cel.@mapInsert(map<K,V>; map<K,V>) map<K,V>", _insert_all),
]
OF_ATTRIBUTES = [Overload("dra_includes_dyn_dyn", "dyn|includes(dyn) bool", _includes)]
"""Functions that exist only where attributes may be lists."""
