"""The operators and the conversions between types, with errors instead of wrapping around."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from gangline.cel import costs
from gangline.cel.overloads import Overload
from gangline.cel.times import SECOND, Duration, Timestamp, duration_of, duration_text, timestamp_of, timestamp_text
from gangline.cel.values import (
    LEAST_INT,
    MOST_INT,
    MOST_UINT,
    TYPE_VALUES,
    Map,
    TypeValue,
    Uint,
    compared,
    contains,
    no_overload,
    size_of,
    type_name,
)
from gangline.errors import ExpressionFailed

_NUMBERS = (int, Uint, float)
MOST_LENGTH = 10_000_000
"""Characters, bytes or entries of one value; nothing that stays within the cost limit is longer."""


def _whole(kind: type, value: int) -> int:
    if kind is int:
        if LEAST_INT <= value <= MOST_INT:
            return value
        raise ExpressionFailed("integer overflow")
    if 0 <= value <= MOST_UINT:
        return Uint(value)
    raise ExpressionFailed("unsigned integer overflow")


def bounded(value: Any) -> Any:
    """The value. Raises ExpressionFailed when it is too long."""
    if len(value) > MOST_LENGTH:
        raise ExpressionFailed(f"a value of {len(value)} entries, and at most {MOST_LENGTH} are kept")
    return value


def add(left: Any, right: Any) -> Any:
    """The sum, or two texts, lists or bytes as one. Raises ExpressionFailed."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int or kind is Uint:
            return _whole(kind, int(left) + int(right))
        if kind is str or kind is list or kind is bytes:
            return bounded(left + right)
        if kind is float:
            return left + right
        if kind is Duration:
            return Duration(left.ns + right.ns)
    if kind is Timestamp and other is Duration:
        return Timestamp(left.ns + right.ns, left.offset)
    if kind is Duration and other is Timestamp:
        return Timestamp(left.ns + right.ns, right.offset)
    raise no_overload()


def subtract(left: Any, right: Any) -> Any:
    """The difference. Raises ExpressionFailed."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int or kind is Uint:
            return _whole(kind, int(left) - int(right))
        if kind is float:
            return left - right
        if kind is Duration or kind is Timestamp:
            return Duration(left.ns - right.ns)
    if kind is Timestamp and other is Duration:
        return Timestamp(left.ns + Duration(-right.ns).ns, left.offset)
    raise no_overload()


def multiply(left: Any, right: Any) -> Any:
    """The product. Raises ExpressionFailed."""
    kind = type(left)
    if kind is not type(right) or kind not in _NUMBERS:
        raise no_overload()
    return left * right if kind is float else _whole(kind, int(left) * int(right))


def divide(left: Any, right: Any) -> Any:
    """The quotient, of integers towards zero. Raises ExpressionFailed."""
    kind = type(left)
    if kind is not type(right) or kind not in _NUMBERS:
        raise no_overload()
    if kind is float:
        return _divided(left, right)
    if right == 0:
        raise ExpressionFailed("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    return _whole(kind, quotient if (left < 0) == (right < 0) else -quotient)


def _divided(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Any, right: Any) -> Any:
    """The remainder, with the sign of the left one. Raises ExpressionFailed."""
    kind = type(left)
    if kind is not type(right) or kind not in (int, Uint):
        raise no_overload()
    if right == 0:
        raise ExpressionFailed("modulus by zero")
    if kind is int and left == LEAST_INT and right == -1:
        raise ExpressionFailed("integer overflow")
    rest = abs(int(left)) % abs(int(right))
    return _whole(kind, -rest if left < 0 else rest)


def negate(value: Any) -> Any:
    """The value with the other sign. Raises ExpressionFailed."""
    kind = type(value)
    if kind is int:
        return _whole(int, -value)
    if kind is float:
        return -value
    if kind is Duration:
        return Duration(-value.ns)
    raise no_overload()


def invert(value: Any) -> bool:
    """The other truth value. Raises ExpressionFailed."""
    if value is True:
        return False
    if value is False:
        return True
    raise no_overload()


def is_in(value: Any, within: Any) -> bool:
    """Whether a list has the value, or a map the key. Raises ExpressionFailed."""
    if type(within) is list:
        return contains(within, value)
    if type(within) is Map:
        return within.find(value)[1]
    raise no_overload()


def _size(value: Any) -> int:
    if type(value) in (str, bytes, list, Map):
        return size_of(value)
    raise no_overload()


_INTEGER = re.compile(r"[+-]?[0-9]+")
_NATURAL = re.compile(r"[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_HEX_FLOAT = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+(\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+", re.ASCII)
_SPECIAL = re.compile(r"[+-]?(inf|infinity)|nan", re.ASCII | re.IGNORECASE)
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _inconvertible(value: Any, wanted: str) -> ExpressionFailed:
    return ExpressionFailed(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def to_int(value: Any) -> int:
    """The value as an int. Raises ExpressionFailed."""
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is Uint:
        return _whole(int, int(value))
    if kind is float:
        if math.isnan(value) or value <= -(2.0**63) or value >= 2.0**63:
            raise ExpressionFailed("integer overflow")
        return int(value)
    if kind is str and len(value) < 1000 and _INTEGER.fullmatch(value) and LEAST_INT <= int(value) <= MOST_INT:
        return int(value)
    if kind is Timestamp:
        return int(value.ns // SECOND)
    if kind is Duration:
        return int(value.ns)
    raise _inconvertible(value, "int")


def to_uint(value: Any) -> Uint:
    """The value as an unsigned integer. Raises ExpressionFailed."""
    kind = type(value)
    if kind is int or kind is Uint:
        _whole(Uint, int(value))
        return Uint(value)
    if kind is float:
        if math.isnan(value) or value < 0 or value >= 2.0**64:
            raise ExpressionFailed("unsigned integer overflow")
        return Uint(value)
    if kind is str and len(value) < 1000 and _NATURAL.fullmatch(value) and int(value) <= MOST_UINT:
        return Uint(value)
    raise _inconvertible(value, "uint")


def to_double(value: Any) -> float:
    """The value as a double. Raises ExpressionFailed."""
    kind = type(value)
    if kind in _NUMBERS:
        return float(value)
    if kind is str:
        if _SPECIAL.fullmatch(value):
            return float(value)
        if _FLOAT.fullmatch(value) or _HEX_FLOAT.fullmatch(value):
            try:
                number = float(value) if _FLOAT.fullmatch(value) else float.fromhex(value)
            except OverflowError:
                number = math.inf
            if not math.isinf(number):
                return number
    raise _inconvertible(value, "double")


def to_bool(value: Any) -> bool:
    """The value as a bool. Raises ExpressionFailed."""
    if value is True or value is False:
        return bool(value)
    if type(value) is str and value in _TRUE:
        return True
    if type(value) is str and value in _FALSE:
        return False
    raise _inconvertible(value, "bool")


def double_text(value: float) -> str:
    """The shortest form, with an exponent below 1e-4 and from 1e6 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    digits, _, exponent = f"{value!r}".lower().partition("e")
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("-").partition(".")
    fraction = "" if fraction == "0" and not exponent else fraction
    shift = int(exponent or 0) + len(whole) - 1
    figures = (whole + fraction).lstrip("0")
    shift -= len(whole + fraction) - len((whole + fraction).lstrip("0"))
    figures = figures.rstrip("0") or "0"
    if shift < -4 or shift >= 6:
        mantissa = figures[0] + (f".{figures[1:]}" if len(figures) > 1 else "")
        return f"{sign}{mantissa}e{'-' if shift < 0 else '+'}{abs(shift):02d}"
    if shift < 0:
        return f"{sign}0.{'0' * (-shift - 1)}{figures}"
    if len(figures) <= shift + 1:
        return sign + figures.ljust(shift + 1, "0")
    return f"{sign}{figures[: shift + 1]}.{figures[shift + 1 :]}"


def to_string(value: Any) -> str:
    """The value as a text. Raises ExpressionFailed."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return double_text(value)
    if kind is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise ExpressionFailed("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is Duration:
        return duration_text(value)
    if kind is TypeValue:
        return str(value.name)
    raise _inconvertible(value, "string")


def _to_bytes(value: Any) -> bytes:
    return value if type(value) is bytes else value.encode("utf-8", "surrogatepass")


def _to_duration(value: Any) -> Duration:
    if type(value) is Duration:
        return value
    if type(value) is int:
        raise _inconvertible(value, "google.protobuf.Duration")
    return duration_of(value)


def _to_timestamp(value: Any) -> Timestamp:
    if type(value) is Timestamp:
        return value
    return Timestamp(value * SECOND) if type(value) is int else timestamp_of(value)


def _relation(holds: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: holds(compared(left, right))


def _relations() -> list[Overload]:
    made: list[Overload] = []
    ids = {"bool": "bool", "int": "int64", "uint": "uint64", "double": "double", "string": "string", "bytes": "bytes"}
    ids |= {"timestamp": "timestamp", "duration": "duration"}
    signs: list[tuple[str, str, Callable[[int], bool]]] = [
        ("<", "less", lambda c: c < 0),
        ("<=", "less_equals", lambda c: c <= 0),
        (">", "greater", lambda c: c > 0),
        (">=", "greater_equals", lambda c: c >= 0),
    ]
    for sign, word, holds in signs:
        run = _relation(holds)
        for kind, id_ in ids.items():
            cost = costs.shorter if kind in ("string", "bytes") else None
            made.append(Overload(f"{word}_{id_}", f"_{sign}_({kind}; {kind}) bool", run, cost))
        for left in ("int", "uint", "double"):
            for right in ("int", "uint", "double"):
                if left != right:
                    made.append(Overload(f"{word}_{ids[left]}_{ids[right]}", f"_{sign}_({left}; {right}) bool", run))
    return made


def _same(sign: str, run: Callable[[Any, Any], Any], kinds: list[str], costly: Any = None) -> list[Overload]:
    return [
        Overload(f"{sign}{k}", f"_{sign}_({k}; {k}) {k}", run, costly if k in ("string", "bytes") else None)
        for k in kinds
    ]


def _converting(wanted: str, name: str, run: Callable[[Any], Any], kinds: list[str]) -> list[Overload]:
    made: list[Overload] = []
    for kind in kinds:
        costly = (kind, wanted) in (("string", "bytes"), ("bytes", "string"))
        cost = costs.traverses() if costly else None
        made.append(Overload(f"{kind}_to_{name}", f"{name}({kind}) {wanted}", run, cost))
    return made


def _same_value(value: Any) -> Any:
    return value


def _type(value: Any) -> TypeValue:
    name = type_name(value)
    return TYPE_VALUES.get(name) or TypeValue(name)


OVERLOADS = [
    *_same("+", add, ["bytes", "double", "duration"], costs.both),
    Overload("add_duration_timestamp", "_+_(duration; timestamp) timestamp", add),
    Overload("add_timestamp_duration", "_+_(timestamp; duration) timestamp", add),
    *_same("+", add, ["int"]),
    Overload("add_list", "_+_(list<A>; list<A>) list<A>", add),
    *_same("+", add, ["string", "uint"], costs.both),
    *_same("/", divide, ["double", "int", "uint"]),
    *_same("%", modulo, ["int", "uint"]),
    *_same("*", multiply, ["double", "int", "uint"]),
    Overload("negate_double", "-_(double) double", negate),
    Overload("negate_int64", "-_(int) int", negate),
    *_same("-", subtract, ["double", "duration", "int"]),
    Overload("subtract_timestamp_duration", "_-_(timestamp; duration) timestamp", subtract),
    Overload("subtract_timestamp_timestamp", "_-_(timestamp; timestamp) duration", subtract),
    *_same("-", subtract, ["uint"]),
    Overload("logical_not", "!_(bool) bool", invert),
    Overload("in_list", "@in(A; list<A>) bool", is_in, costs.list_length),
    Overload("in_map", "@in(A; map<A,B>) bool", is_in),
    *_relations(),
    *(
        Overload(f"{style}size_{kind}", f"{form} int", _size)
        for kind in ("bytes", "list<A>", "map<A,B>", "string")
        for style, form in (("", f"size({kind})"), ("member_", f"{kind}|size()"))
    ),
    Overload("type", "type(A) type<A>", _type),
    Overload("to_dyn", "dyn(A) dyn", _same_value),
    *_converting("bool", "bool", to_bool, ["bool", "string"]),
    *_converting("bytes", "bytes", _to_bytes, ["bytes", "string"]),
    *_converting("double", "double", to_double, ["double", "int", "string", "uint"]),
    *_converting("duration", "duration", _to_duration, ["duration", "int", "string"]),
    *_converting("int", "int", to_int, ["int", "double", "duration", "string", "timestamp", "uint"]),
    *_converting("string", "string", to_string, ["string", "bool", "bytes", "double", "duration", "int"]),
    *_converting("string", "string", to_string, ["timestamp", "uint"]),
    *_converting("timestamp", "timestamp", _to_timestamp, ["timestamp", "int", "string"]),
    *_converting("uint", "uint", to_uint, ["uint", "double", "int", "string"]),
]
