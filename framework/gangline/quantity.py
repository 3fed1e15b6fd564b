"""Kubernetes resource quantities as exact integers.

Every quantity that the API server stores is a multiple of 1m (it rounds up when it decodes), so a quantity
is held here as a whole number of thousandths; sums over containers are exact, and rounding up to whole
bytes or devices happens once, at the end, as in kube-scheduler.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from gangline.bounds import MOST_DIGITS
from gangline.errors import InvalidQuantity

_FORM = re.compile(r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_SCALE: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{suffix: Fraction(1000 ** (i + 1)) for i, suffix in enumerate("kMGTPE")},
    **{suffix + "i": Fraction(1024 ** (i + 1)) for i, suffix in enumerate("KMGTPE")},
}
MAX_UNITS = 2**63 - 1
"""The largest whole value; larger ones are reduced to it, as in Kubernetes."""


@lru_cache(maxsize=65536)
def _milli(text: str) -> int:
    if len(text) > MOST_DIGITS:
        why = f"a quantity of {len(text)} characters, and at most {MOST_DIGITS} are read"
        raise InvalidQuantity("", text[:20] + "...", why)
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidQuantity("", text, "not a quantity: a number with a suffix like m, k, Mi, Gi or e3 is expected")
    number, suffix = match["number"], match["suffix"] or ""
    scale = _SCALE.get(suffix)
    if scale is None:
        if len(suffix) > 5 or abs(int(suffix[1:])) > 100:
            raise InvalidQuantity("", text, "the exponent is out of range")
        scale = Fraction(10) ** int(suffix[1:])
    exact = Fraction(number) * scale * 1000
    rounded = -((-exact.numerator) // exact.denominator)  # up, towards +infinity
    return max(-MAX_UNITS * 1000, min(MAX_UNITS * 1000, rounded))


def milli(quantity: str | int | float) -> int:
    """The quantity in thousandths, rounded up. Raises InvalidQuantity."""
    return _milli(quantity if isinstance(quantity, str) else repr(quantity))


def units(quantity: str | int | float) -> int:
    """The quantity in whole units (bytes, devices), rounded up. Raises InvalidQuantity."""
    return whole(milli(quantity))


def whole(thousandths: int) -> int:
    """Thousandths to whole units, rounded up."""
    return -(-thousandths // 1000)
