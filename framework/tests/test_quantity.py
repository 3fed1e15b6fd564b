"""Quantities are exact: every notation, rounding, limits and errors."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import quantity
from gangline.errors import InvalidQuantity

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e3": Fraction(10**3),
    "E-2": Fraction(1, 100),
    "e+1": Fraction(10),
}
MOST = quantity.MAX_UNITS * 1000
NO_QUANTITY = "not a quantity: a number with a suffix like m, k, Mi, Gi or e3 is expected"


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("0", 0),
        ("100m", 100),
        ("1.5", 1500),
        ("1e3", 1_000_000),
        ("2Gi", 2 * 2**30 * 1000),
        ("1G", 10**12),
        ("500k", 500_000_000),
        ("0.1", 100),
        (".5", 500),
        ("5.", 5000),
        ("+1", 1000),
        ("-1", -1000),
        ("1E", 10**21),
        ("1Ei", 2**60 * 1000),
        ("1E3", 1_000_000),
        ("1e-3", 1),
        ("100u", 1),
        ("1n", 1),
        (7, 7000),
        (0.25, 250),
        (1e22, MOST),
        (1e-07, 1),
    ],
    ids=str,
)
def test_every_notation_is_read(text: str | int | float, thousandths: int) -> None:
    assert quantity.milli(text) == thousandths


@given(st.decimals(0, 10**6, places=6, allow_nan=False), st.sampled_from(sorted(SUFFIXES)))
def test_a_quantity_is_the_exact_value_rounded_up_to_a_thousandth(number: object, suffix: str) -> None:
    exact = Fraction(f"{number:f}") * SUFFIXES[suffix]

    assert quantity.milli(f"{number:f}{suffix}") == min(MOST, math.ceil(exact * 1000))


@given(st.integers(0, 10**15))
def test_whole_units_are_never_less_than_the_thousandths(thousandths: int) -> None:
    assert 0 <= quantity.whole(thousandths) * 1000 - thousandths < 1000


def test_units_round_up() -> None:
    assert [quantity.units(text) for text in ("1m", "1", "1001m", "1Ki")] == [1, 1, 2, 1024]


@pytest.mark.parametrize("text", ["9e99", "100E", 10**30], ids=str)
def test_what_is_too_large_is_cut_to_the_largest_amount(text: str | int) -> None:
    assert quantity.units(text) == quantity.MAX_UNITS


@pytest.mark.parametrize(
    "text", ["", "abc", "1.5.2", "1 Gi", "1gi", "1K", "1e", "Gi", ".", "--1", "0x1", "inf", "nan", "١"], ids=repr
)
def test_what_is_no_quantity_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidQuantity) as error:
        quantity.milli(text)

    assert str(error.value) == f"{text!r}: {NO_QUANTITY}"


@pytest.mark.parametrize("text", ["1e101", "1e-101", "1E1000", "1e" + "9" * 100])
def test_a_huge_exponent_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuantity) as error:
        quantity.milli(text)

    assert str(error.value) == f"{text!r}: the exponent is out of range"


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1e" + "9" * 5000, "0." + "0" * 5000], ids=["digits", "exponent", "zeros"]
)
def test_a_quantity_of_very_many_characters_is_not_read(text: str) -> None:
    with pytest.raises(InvalidQuantity, match=r"a quantity of 500[02] characters, and at most 128 are read") as error:
        quantity.milli(text)

    assert len(str(error.value)) < 200
