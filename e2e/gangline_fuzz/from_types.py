"""Strategies built from types: JSON data that fits a struct, nearly fits it, or does not at all."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from gangline_fuzz import edges, vocabulary
from gangline_fuzz.edges import Values

DEPTH = 7
"""The greatest depth of structs in structs."""
FIELDS = 3
"""At most so many fields of a struct are filled in beyond those that it must have."""


@functools.cache
def strategy_for(kind: Any, depth: int = DEPTH) -> Values:
    """Data of a type: mostly as it should be."""
    return _of(inspect.type_info(kind), "", depth)


@functools.cache
def structure_of(kind: Any) -> inspect.StructType:
    """The fields of a struct."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType), f"{kind} is no struct"
    return found


def _of(kind: inspect.Type, field: str, depth: int) -> Values:
    hint = vocabulary.base(field)
    made = _made(kind, field, depth)
    chosen = made if hint is None else hint | hint | made
    return st.integers(0, 11).flatmap(lambda dice: edges.wrong if dice == 11 else chosen)


def _made(kind: inspect.Type, field: str, depth: int) -> Values:
    match kind:
        case inspect.StructType():
            return st.just({}) if depth <= 0 else st.deferred(lambda: _struct(kind.cls, depth))
        case inspect.StrType():
            return vocabulary.values
        case inspect.IntType():
            return edges.numbers
        case inspect.FloatType():
            return edges.floats
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.ListType() | inspect.VarTupleType():
            return st.lists(_of(kind.item_type, "", depth - 1), max_size=3)
        case inspect.DictType():
            inner = _of(kind.value_type, "", depth - 1)
            return st.dictionaries(edges.texts.filter(lambda key: isinstance(key, str)), inner, max_size=3)
        case inspect.UnionType():
            return st.one_of([_made(each, field, depth) for each in kind.types])
        case _:
            return edges.json_values


@functools.cache
def _struct(cls: Any, depth: int) -> Values:
    fields = structure_of(cls).fields
    must = [field for field in fields if field.required]
    may = [field for field in fields if not field.required]

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        chosen = draw(st.lists(st.sampled_from(may), max_size=FIELDS, unique_by=lambda f: f.name)) if may else []
        if must and draw(st.integers(0, 19)) == 19:
            chosen = chosen[1:]
            return {field.encode_name: draw(_field(field, depth)) for field in chosen}
        return {field.encode_name: draw(_field(field, depth)) for field in (*must, *chosen)}

    return build()


def _field(field: inspect.Field, depth: int) -> Values:
    return _of(field.type, field.name, depth - 1)


@st.composite
def edited(draw: st.DrawFn, kind: Any, data: Any) -> Any:
    """The data with one field, somewhere in it, made anew."""
    return _edited(draw, inspect.type_info(kind), "", data, DEPTH)


def _edited(draw: st.DrawFn, kind: inspect.Type, name: str, data: Any, depth: int) -> Any:
    inner = _inside(kind)
    stop = depth <= 0 or inner is None or not draw(st.integers(0, 4))
    if stop or inner is None:
        return draw(_of(kind, name, 2))
    if isinstance(inner, inspect.ListType):
        items = list(data) if isinstance(data, list) else []
        at = draw(st.integers(0, len(items)))
        old = items[at] if at < len(items) else None
        items[at : at + 1] = [_edited(draw, inner.item_type, "", old, depth - 1)]
        return items
    field = draw(st.sampled_from(inner.fields))
    whole = dict(data) if isinstance(data, dict) else {}
    if draw(st.integers(0, 15)) == 15:
        whole.pop(field.encode_name, None)
        return whole
    whole[field.encode_name] = _edited(draw, field.type, field.name, whole.get(field.encode_name), depth - 1)
    return whole


def _inside(kind: inspect.Type) -> inspect.StructType | inspect.ListType | None:
    """Where an edit may go on: a struct, a list of structs, or None."""
    if isinstance(kind, inspect.UnionType):
        return next((found for each in kind.types if (found := _inside(each)) is not None), None)
    if isinstance(kind, inspect.StructType):
        return kind
    return kind if isinstance(kind, inspect.ListType) and _inside(kind.item_type) is not None else None


def fits(kind: type[msgspec.Struct], data: Any) -> bool:
    """Whether data is of a type."""
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError:
        return False
    return True
