"""Resource quantities as the language sees them.

`gangline.quantity` rounds to thousandths, as the API server does when it stores a quantity. Expressions see more:
nanos, and whether Kubernetes keeps the quantity as a 64-bit integer with a scale, on which `isInteger` depends.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from gangline.cel import costs
from gangline.cel.overloads import Overload
from gangline.cel.values import LEAST_INT, MOST_INT, name_type, no_overload, strict
from gangline.errors import ExpressionFailed

_FORM = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*)([+-]?[0-9]*)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MOST_DIGITS = 64
_LEAST_SCALE = -9


class Quantity:
    """`value` x 10^`scale`; `small` says that Kubernetes keeps it as a 64-bit integer.

    `computed` marks a sum. As in Kubernetes, a comparison == with a sum on the right side fails.
    """

    __slots__ = ("computed", "scale", "small", "value")

    def __init__(self, value: int, scale: int, small: bool, computed: bool = False) -> None:
        self.computed = computed
        self.value = value
        self.scale = scale
        self.small = small

    def compared(self, other: Quantity) -> int:
        low = min(self.scale, other.scale)
        left, right = self.value * 10 ** (self.scale - low), other.value * 10 ** (other.scale - low)
        return (left > right) - (left < right)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity) and other.computed:
            raise no_overload()
        return isinstance(other, Quantity) and self.compared(other) == 0

    __hash__ = None  # type: ignore[assignment]


name_type(Quantity, "kubernetes.Quantity")
strict(Quantity)


@lru_cache(maxsize=65536)
def quantity_of(text: str) -> Quantity:
    """The quantity in a text. Raises ExpressionFailed."""
    match = _FORM.fullmatch(text) if 0 < len(text) <= _MOST_DIGITS else None
    if match is None:
        raise ExpressionFailed(f"not a quantity: {text[:60]!r}")
    negative, whole, point, fraction = match[1] == "-", match[2].lstrip("0"), match[3], match[4] or ""
    suffix = match[5] + match[6]
    if not match[2] and not point and not suffix:
        return Quantity(0, 0, True)
    if not match[2] and point and not fraction and not suffix:
        return _numbers(negative, "0", "", 0)
    base_2, exponent = _scaled(suffix)
    whole = whole or "0"
    if base_2:
        return _binary(negative, whole, fraction, exponent)
    return _numbers(negative, whole, fraction, exponent)


def _scaled(suffix: str) -> tuple[bool, int]:
    if suffix in _BINARY:
        return True, _BINARY[suffix]
    if suffix in _DECIMAL:
        return False, _DECIMAL[suffix]
    if suffix[:1] in ("e", "E") and re.fullmatch(r"[+-]?[0-9]{1,4}", suffix[1:]):
        return False, int(suffix[1:])
    raise ExpressionFailed(f"not a suffix of a quantity: {suffix!r}")


def _numbers(negative: bool, whole: str, fraction: str, exponent: int) -> Quantity:
    value, scale = int(whole + fraction), exponent - len(fraction)
    if len(whole + fraction) <= 18 and scale >= _LEAST_SCALE:
        return Quantity(-value if negative else value, scale, True)
    if abs(scale) > 1000:
        raise ExpressionFailed("the exponent of a quantity is out of range")
    return _rounded(negative, value, scale, False)


def _binary(negative: bool, whole: str, fraction: str, exponent: int) -> Quantity:
    value = int(whole + fraction) << exponent
    precision = 15 - len(whole) - int(exponent * 3 / 10) - 1
    if not fraction and precision >= 0 and value <= MOST_INT:
        return Quantity(-value if negative else value, 0, True)
    return _rounded(negative, value, -len(fraction), True)


def _rounded(negative: bool, value: int, scale: int, capped: bool) -> Quantity:
    if scale < _LEAST_SCALE:
        value = -(-value // 10 ** (_LEAST_SCALE - scale))
        scale = _LEAST_SCALE
    elif value:
        value *= 10 ** (scale - _LEAST_SCALE)
        scale = _LEAST_SCALE
    if capped and value > MOST_INT * 10**-scale if scale <= 0 else False:
        value, scale = MOST_INT, 0
    return Quantity(-value if negative else value, scale, False)


def _is_quantity(text: str) -> bool:
    try:
        quantity_of(text)
    except ExpressionFailed:
        return False
    return True


def _integer(one: Quantity) -> int | None:
    if not one.small or one.scale < 0:
        return None
    value = one.value * 10**one.scale
    return value if LEAST_INT <= value <= MOST_INT else None


def _as_integer(one: Quantity) -> int:
    value = _integer(one)
    if value is None:
        raise ExpressionFailed("cannot convert value to integer")
    return value


def _as_float(one: Quantity) -> float:
    try:
        base = float(one.value)
        return base if one.scale == 0 else base * (10.0**one.scale if one.scale > -300 else 0.0)
    except OverflowError:
        return float("inf") if one.value > 0 else float("-inf")


def _sum(left: Quantity, right: Quantity, sign: int) -> Quantity:
    low = min(left.scale, right.scale)
    if left.small and right.small:
        if left.value == 0:
            return Quantity(sign * right.value, right.scale, True, True)
        if right.value == 0:
            return Quantity(left.value, left.scale, True, True)
    value = left.value * 10 ** (left.scale - low) + sign * right.value * 10 ** (right.scale - low)
    small = left.small and right.small and LEAST_INT <= value <= MOST_INT
    return Quantity(value, low, small, True)


def _with_int(sign: int) -> Any:
    return lambda one, number: _sum(one, Quantity(number, 0, True), sign)


OVERLOADS = [
    Overload("string_to_quantity", "quantity(string) Quantity", quantity_of, costs.traverses()),
    Overload("is_quantity_string", "isQuantity(string) bool", _is_quantity, costs.traverses()),
    Overload("quantity_sign", "sign(Quantity) int", lambda q: (q.value > 0) - (q.value < 0)),
    Overload("quantity_is_greater_than", "Quantity|isGreaterThan(Quantity) bool", lambda a, b: a.compared(b) > 0),
    Overload("quantity_is_less_than", "Quantity|isLessThan(Quantity) bool", lambda a, b: a.compared(b) < 0),
    Overload("quantity_compare_to", "Quantity|compareTo(Quantity) int", Quantity.compared),
    Overload("quantity_get_float", "Quantity|asApproximateFloat() double", _as_float),
    Overload("quantity_get_int", "Quantity|asInteger() int", _as_integer),
    Overload("quantity_is_integer", "Quantity|isInteger() bool", lambda q: _integer(q) is not None),
    Overload("quantity_add", "Quantity|add(Quantity) Quantity", lambda a, b: _sum(a, b, 1)),
    Overload("quantity_add_int", "Quantity|add(int) Quantity", _with_int(1)),
    Overload("quantity_sub", "Quantity|sub(Quantity) Quantity", lambda a, b: _sum(a, b, -1)),
    Overload("quantity_sub_int", "Quantity|sub(int) Quantity", _with_int(-1)),
]
