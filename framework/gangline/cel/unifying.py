"""Which type may stand where another type is expected, and which types the type parameters are then bound to."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.cel.kinds import DYN, PRIMITIVE, Type

Bindings = dict[Type, Type]
"""By type parameter: the type that it is bound to."""

_COMPOSED = frozenset({"opaque", "list", "map", "type"})
_NULLABLE = frozenset({"opaque", "struct", "any", "duration", "timestamp"})


def is_dyn(one: Type) -> bool:
    """Whether values of the type may have any type."""
    return one.kind in ("dyn", "any")


def assignable(bound: Bindings, wanted: Sequence[Type], given: Sequence[Type]) -> Bindings | None:
    """The bindings after each given type has taken the place of the wanted type; None if one of them does not fit."""
    after = dict(bound)
    return after if _all_fit(after, wanted, given) else None


def _all_fit(bound: Bindings, left: Sequence[Type], right: Sequence[Type]) -> bool:
    return len(left) == len(right) and all(_fits(bound, one, other) for one, other in zip(left, right, strict=True))


def _fits(bound: Bindings, left: Type, right: Type) -> bool:
    if right.kind == "param":
        valid, known = _binds(bound, left, right)
        if valid:
            return True
        if known:
            return False
    if left.kind == "param":
        return _binds(bound, right, left)[0]
    if left.kind in ("dyn", "any", "error") or right.kind in ("dyn", "any", "error"):
        return True
    if left.kind == "null":
        return right.kind == "null" or right.kind in _NULLABLE
    if right.kind == "null":
        return left.kind in _NULLABLE
    if left.kind == "type":
        return right.kind == "type"
    if left.kind in _COMPOSED:
        return left[:2] == right[:2] and _all_fit(bound, left.params, right.params)
    return left == right


def _binds(bound: Bindings, one: Type, parameter: Type) -> tuple[bool, bool]:
    """Bind the parameter to `one` if it may be. Returns whether it may be, and whether it was bound before."""
    if one == parameter:
        return True, True
    before = bound.get(parameter)
    if before is not None:
        if one == before:
            return True, True
        if _fits(bound, one, before):
            general = most_general(one, before)
            if _free_of(bound, parameter, general):
                bound[parameter] = general
            return True, True
        return False, True
    if _free_of(bound, parameter, one):
        bound[parameter] = one
        return True, False
    return False, False


def most_general(one: Type, other: Type) -> Type:
    """The more general one of two types that fit each other."""
    return one if _no_more_specific(one, other) else other


def _no_more_specific(one: Type, other: Type) -> bool:
    if is_dyn(one) or one.kind == "param":
        return True
    if is_dyn(other) or other.kind == "param":
        return False
    if one.kind != other.kind:
        return False
    if one.kind == "type":
        return True
    if one.kind in _COMPOSED:
        if one.name != other.name or len(one.params) != len(other.params):
            return False
        return all(map(_no_more_specific, one.params, other.params))
    return one == other


def _free_of(bound: Bindings, parameter: Type, within: Type) -> bool:
    if parameter == within:
        return False
    if within.kind == "param":
        inner = bound.get(within)
        return inner is None or _free_of(bound, parameter, inner)
    return all(_free_of(bound, parameter, each) for each in within.params)


def substituted(bound: Bindings, one: Type, free_is_dyn: bool = False) -> Type:
    """The type with its bound parameters replaced; with `free_is_dyn` the unbound parameters become dyn."""
    if one.kind in PRIMITIVE:
        return one
    inner = bound.get(one)
    if inner is not None:
        return substituted(bound, inner, free_is_dyn)
    if one.kind == "param":
        return DYN if free_is_dyn else one
    if not one.params:
        return one
    return Type(one.kind, one.name, tuple(substituted(bound, each, free_is_dyn) for each in one.params))
