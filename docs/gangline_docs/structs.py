"""Describes msgspec structs as tables: each field with its type, default, limits and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import NODEFAULT, inspect

from gangline import model
from gangline.durations import Seconds, format_duration
from gangline_docs.markdown import code, prose, sentences, table
from gangline_docs.source import field_docs

Described = tuple[str, Any, str]
"""Path, field as msgspec describes it, and docstring."""
_PLAIN = {
    inspect.AnyType: "any",
    inspect.BoolType: "boolean",
    inspect.BytesType: "base64",
    inspect.FloatType: "number",
    inspect.IntType: "integer",
    inspect.NoneType: "null",
    inspect.StrType: "text",
}


def table_of(
    cls: type[msgspec.Struct], *, deep: bool = True, meanings: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The fields as a Markdown table; `deep` follows structs within, with paths such as `a.b[].c`.

    `meanings` says by path what a field without a docstring means.
    """
    rows = [
        (
            code(path),
            type_name(field.type),
            default_of(field),
            sentences(prose(doc) or meanings.get(path, ""), limits(field.type)),
        )
        for path, field, doc in fields(cls, deep=deep)
    ]
    return table(("Field", "Type", "Default", "Meaning"), rows)


def fields(cls: type[msgspec.Struct], *, deep: bool = True) -> Iterator[Described]:
    """Every field; structs of Kubernetes are not followed, nor is one that holds itself."""
    return _fields(cls, "", deep, ())


def _fields(cls: type[msgspec.Struct], prefix: str, deep: bool, seen: tuple[type, ...]) -> Iterator[Described]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType), f"{cls} is no struct"
    docs = field_docs(cls)
    for field in info.fields:
        path = f"{prefix}.{field.encode_name}" if prefix else field.encode_name
        yield path, field, docs.get(field.name, "")
        inner, brackets = struct_in(field.type)
        if deep and inner is not None and inner not in (cls, *seen) and not _is_kubernetes(inner):
            yield from _fields(inner, path + brackets, deep, (cls, *seen))


def _is_kubernetes(cls: type) -> bool:
    return cls.__module__.startswith(model.__name__)


def struct_in(type_: inspect.Type) -> tuple[type[msgspec.Struct] | None, str]:
    """The struct that a field holds, if it holds one, and the brackets that lead there."""
    type_ = _bare(type_)
    if isinstance(type_, inspect.StructType):
        return type_.cls, ""
    if isinstance(type_, inspect.ListType | inspect.VarTupleType):
        inner, brackets = struct_in(type_.item_type)
        return inner, f"[]{brackets}"
    return None, ""


def type_name(type_: inspect.Type) -> str:
    """A type in words, as a user of YAML would say."""
    match _bare(type_):
        case inspect.UnionType(types=types):
            return " or ".join(type_name(each) for each in types if not isinstance(each, inspect.NoneType))
        case inspect.LiteralType(values=values):
            return " ".join(code(str(value)) if value != "" else '`""`' for value in values)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return f"list of {type_name(item)}"
        case inspect.DictType(key_type=key, value_type=value):
            return f"map of {type_name(key)} to {type_name(value)}"
        case inspect.StructType(cls=cls):
            return f"{cls.__name__} of Kubernetes" if _is_kubernetes(cls) else "object"
        case inspect.CustomType(cls=cls) if cls is Seconds:
            return "duration"
        case bare:
            return _PLAIN[type(bare)]


def default_of(field: inspect.Field) -> str:
    """A default as YAML would have it; objects have theirs in their fields."""
    value = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    if value is NODEFAULT:
        return "required"
    if isinstance(value, Seconds):
        return code(format_duration(value))
    if value is None or value in ("", b""):
        return ""
    if isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, str):
        return code(value)
    if isinstance(value, float):
        return code(f"{value:.10g}")
    return code(msgspec.json.encode(value, enc_hook=str).decode())


def limits(type_: inspect.Type) -> str:
    """What a value has to keep to, beside its type."""
    bare = _bare(type_)
    if isinstance(bare, inspect.IntType | inspect.FloatType):
        return _range(bare)
    if isinstance(bare, inspect.StrType):
        parts = ["not empty" if bare.min_length else "", f"matches `{bare.pattern}`" if bare.pattern else ""]
        return ", ".join(part for part in parts if part)
    if isinstance(bare, inspect.ListType | inspect.VarTupleType):
        return "not empty" if bare.min_length else ""
    return ""


def _range(type_: inspect.IntType | inspect.FloatType) -> str:
    low = (
        f"at least {type_.ge:g}" if type_.ge is not None else f"more than {type_.gt:g}" if type_.gt is not None else ""
    )
    most = type_.le if type_.le is not None and type_.le < 2**31 - 1 else None
    high = f"at most {most:g}" if most is not None else f"less than {type_.lt:g}" if type_.lt is not None else ""
    return ", ".join(part for part in (low, high) if part)


def _bare(type_: inspect.Type) -> inspect.Type:
    """Without metadata around it, and without the null of an optional value."""
    while isinstance(type_, inspect.Metadata):
        type_ = type_.type
    if isinstance(type_, inspect.UnionType):
        others = [each for each in type_.types if not isinstance(each, inspect.NoneType)]
        if len(others) == 1:
            return _bare(others[0])
    return type_
