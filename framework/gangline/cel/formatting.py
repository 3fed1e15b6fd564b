"""`format`: clauses such as %s, %d and %.2f, and the check of constant ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gangline.cel.arithmetic import to_double, to_string
from gangline.cel.kinds import Type
from gangline.cel.syntax import ListOf, MapOf, SyntaxNode
from gangline.cel.times import Duration, Timestamp, duration_text, timestamp_text
from gangline.cel.values import Map, TypeValue, Uint, type_name
from gangline.errors import ExpressionFailed

_MOST_PRECISION = 1000
_SPECIAL = ("NaN", "Infinity", "-Infinity")
_Spell = Callable[[Any], str]


def formatted(text: str, args: list[Any]) -> str:
    """The text with its clauses filled in. Raises ExpressionFailed."""
    used = 0

    def spell(letter: str, precision: int | None) -> str:
        nonlocal used
        used += 1
        return _clause(letter, precision)(args[used - 1])

    return _walk(text, len(args), spell)


def checked(text: str, args: list[SyntaxNode]) -> int:
    """How many arguments the clauses take. Raises ExpressionFailed for a clause that does not suit its argument."""
    used = 0

    def spell(letter: str, precision: int | None) -> str:
        nonlocal used
        used += 1
        _clause(letter, precision)
        _suit(letter, args[used - 1])
        return ""

    _walk(text, len(args), spell)
    return used


def _walk(text: str, count: int, spell: Callable[[str, int | None], str]) -> str:
    parts: list[str] = []
    at = used = 0
    while at < len(text):
        start = text.find("%", at)
        if start < 0:
            parts.append(text[at:])
            break
        parts.append(text[at:start])
        at = start + 1
        if text[at : at + 1] == "%":
            parts.append("%")
            at += 1
            continue
        if used >= count:
            raise ExpressionFailed(f"index {used} out of range")
        if at >= len(text):
            raise ExpressionFailed("unexpected end of string")
        precision: int | None = None
        if text[at] == ".":
            end = at + 1
            while end < len(text) and text[end] in "0123456789":
                end += 1
            if end == at + 1 or end >= len(text) or end - at > 5 or int(text[at + 1 : end]) > _MOST_PRECISION:
                raise ExpressionFailed("the precision of a clause cannot be read")
            precision, at = int(text[at + 1 : end]), end
        parts.append(spell(text[at], precision))
        used += 1
        at += 1
    return "".join(parts)


def _clause(letter: str, precision: int | None) -> _Spell:
    if letter in "fe":
        return _floating(letter, 6 if precision is None else precision)
    spell = _CLAUSES.get(letter)
    if spell is None:
        raise ExpressionFailed(f"unrecognized formatting clause {letter!r}")
    return spell


def _unsuited(letter: str, name: str) -> ExpressionFailed:
    return ExpressionFailed(f"the clause {letter!r} does not take {name}")


def _decimal(value: Any) -> str:
    if type(value) not in (int, Uint):
        raise _unsuited("d", type_name(value))
    return str(int(value))


def _floating(letter: str, precision: int) -> _Spell:
    def spell(value: Any) -> str:
        if type(value) is not float and value not in _SPECIAL:
            raise _unsuited(letter, type_name(value))
        number = to_double(value)
        if math.isnan(number):
            return "NaN"
        if math.isinf(number):
            return "∞" if number > 0 else "-∞"
        return f"{number:,.{precision}f}" if letter == "f" else f"{number:.{precision}e}"

    return spell


def _in_base(letter: str) -> _Spell:
    def spell(value: Any) -> str:
        if type(value) is bool and letter == "b":
            return "1" if value else "0"
        if type(value) in (int, Uint):
            return format(int(value), letter)
        if letter in "xX" and isinstance(value, (str, bytes)):
            raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            return raw.hex().upper() if letter == "X" else raw.hex()
        raise _unsuited(letter, type_name(value))

    return spell


def _text(value: Any) -> str:
    kind = type(value)
    if kind is list:
        return "[" + ", ".join(map(_literal, value)) + "]"
    if kind is Map:
        return _map(value)
    if value is None:
        return "null"
    return to_string(value)


def _map(value: Map) -> str:
    pairs: list[tuple[str, str]] = []
    for key in value:
        if type(key) not in (str, bool, int, Uint):
            raise _unsuited("s", f"a key of type {type_name(key)}")
        pairs.append((_literal(key), _literal(value.find(key)[0])))
    pairs.sort(key=lambda pair: pair[0])
    return "{" + ", ".join(f"{key}:{each}" for key, each in pairs) + "}"


def _literal(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is bytes:
        return "b" + quoted(to_string(value))
    if kind is float:
        if math.isnan(value) or math.isinf(value):
            return '"NaN"' if math.isnan(value) else ('"+Inf"' if value > 0 else '"-Inf"')
        return f"{value:.6f}"
    if kind is Timestamp:
        return f'timestamp("{timestamp_text(value)}")'
    if kind is Duration:
        return f'duration("{duration_text(value)}")'
    if kind in (list, Map, int, Uint, bool, type(None), TypeValue):
        return _text(value)
    raise ExpressionFailed(f"no formatting of {type_name(value)}")


_SHORT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_SHORT |= {"\\": "\\\\", '"': '\\"'}


def quoted(text: str) -> str:
    """The text in double quotes, with escapes for what is not printable."""
    parts: list[str] = []
    for each in text:
        code = ord(each)
        if each in _SHORT:
            parts.append(_SHORT[each])
        elif each.isprintable():
            parts.append(each)
        elif code < 0x80:
            parts.append(f"\\x{code:02x}")
        else:
            parts.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(parts) + '"'


_CLAUSES: dict[str, _Spell] = {"s": _text, "d": _decimal, **{each: _in_base(each) for each in "bxXo"}}

_SUITED = {
    "d": {"int", "uint"},
    "f": {"double", "string"},
    "e": {"double", "string"},
    "b": {"int", "uint", "bool"},
    "x": {"int", "uint", "string", "bytes"},
    "X": {"int", "uint", "string", "bytes"},
    "o": {"int", "uint"},
    "s": {
        *("list", "map", "int", "uint", "double", "bool", "string"),
        *("timestamp", "bytes", "duration", "type", "null"),
    },
}


def _suit(letter: str, node: SyntaxNode) -> None:
    one: Type = node.type
    if one.kind != "dyn" and one.kind not in _SUITED[letter]:
        raise _unsuited(letter, str(one))
    if letter == "s":
        inner = node.items if isinstance(node, ListOf) else []
        if isinstance(node, MapOf):
            inner = [*node.keys, *node.values]
        for each in inner:
            _suit(letter, each)
