"""The types that the checker knows, and how they are written in the table of functions."""

from __future__ import annotations

import re
from typing import NamedTuple


class Type(NamedTuple):
    """A type: its kind, its name (of a struct, an opaque type or a parameter) and its parameters."""

    kind: str
    name: str = ""
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.kind == "param":
            return "dyn"
        inner = ", ".join(map(str, self.params))
        return f"{self.name or self.kind}({inner})" if inner else self.name or self.kind


BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null", "null_type")
DYN, ANY, ERROR = Type("dyn"), Type("any"), Type("error")
TIMESTAMP = Type("timestamp", "google.protobuf.Timestamp")
DURATION = Type("duration", "google.protobuf.Duration")
QUANTITY = Type("struct", "kubernetes.Quantity")
SEMVER = Type("struct", "kubernetes.Semver")
URL = Type("struct", "kubernetes.URL")
FORMAT = Type("struct", "kubernetes.NamedFormat")
IP, CIDR = Type("opaque", "net.IP"), Type("opaque", "net.CIDR")
DEVICE = Type("struct", "kubernetes.DRADevice")

PRIMITIVE = frozenset({"bool", "int", "uint", "double", "string", "bytes"})


def list_of(element: Type) -> Type:
    """The type of lists."""
    return Type("list", "", (element,))


def map_of(key: Type, value: Type) -> Type:
    """The type of maps."""
    return Type("map", "", (key, value))


def optional_of(value: Type) -> Type:
    """The type of optionals."""
    return Type("opaque", "optional_type", (value,))


def type_of(inner: Type) -> Type:
    """The type of a type."""
    return Type("type", "", (inner,))


FIELDS = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, ANY)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
"""The fields of `device`."""
FIELDS_WITH_LISTS = {**FIELDS, "attributes": map_of(STRING, map_of(STRING, DYN))}
"""The fields of `device` where attributes may be lists: dyn can be looped over, any cannot."""

TYPE_NAMES = {
    **{each.name or each.kind: each for each in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL)},
    **{each.name: each for each in (TIMESTAMP, DURATION, IP, CIDR, DEVICE)},
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "type": type_of(DYN),
    "optional_type": optional_of(DYN),
}
"""Identifiers that stand for a type."""

_NAMED = {
    **{each.kind: each for each in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, DYN, TIMESTAMP, DURATION)},
    **{"Quantity": QUANTITY, "Semver": SEMVER, "URL": URL, "Format": FORMAT, "IP": IP, "CIDR": CIDR},
}
_WORD = re.compile(r"[A-Za-z]+|[<>,]")


def parsed(text: str) -> Type:
    """A type from its text: `int`, `list<A>`, `map<K,V>`, `optional<V>`, `type<A>`; one letter is a parameter."""
    words = _WORD.findall(text)
    built, rest = _parsed(words)
    if rest:
        raise ValueError(text)
    return built


def _parsed(words: list[str]) -> tuple[Type, list[str]]:
    name, rest = words[0], words[1:]
    if rest[:1] == ["<"]:
        inner: list[Type] = []
        while rest[0] != ">":
            one, rest = _parsed(rest[1:])
            inner.append(one)
        kind = ("opaque", "optional_type") if name == "optional" else (name, "")
        return Type(*kind, tuple(inner)), rest[1:]
    return (Type("param", name) if len(name) == 1 else _NAMED[name]), rest
