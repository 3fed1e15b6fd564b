"""Which toleration covers which taint."""

from __future__ import annotations

import pytest

from gangline import TaintKey
from gangline.model import Toleration
from gangline.state.tolerations import tolerates, untolerated

TAINT = TaintKey("gpu", "a100", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration(key="gpu", value="a100"), True),
        (Toleration(key="gpu", operator="Equal", value="a100", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", value="h100"), False),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="gpu", operator="Like", value="a100"), False),
    ],
    ids=["equal", "full", "exists", "everything", "value", "key", "effect", "operator"],
)
def test_a_toleration_covers_a_taint_of_its_key_value_and_effect(toleration: Toleration, covers: bool) -> None:
    assert tolerates(toleration, TAINT) is covers


@pytest.mark.parametrize(
    ("operator", "value", "covers"),
    [("Gt", "5", True), ("Gt", "7", False), ("Lt", "8", True), ("Lt", "7", False), ("Gt", "many", False)],
    ids=lambda value: str(value),
)
def test_numbers_are_compared_only_where_that_is_switched_on(operator: str, value: str, covers: bool) -> None:
    toleration = Toleration(key="level", operator=operator, value=value)
    taint = TaintKey("level", "7", "NoSchedule")

    assert tolerates(toleration, taint, numeric=True) is covers
    assert not tolerates(toleration, taint)


def test_a_taint_that_is_no_number_is_never_greater_or_less() -> None:
    assert not tolerates(Toleration(key="gpu", operator="Gt", value="1"), TAINT, numeric=True)


def test_the_first_taint_that_nothing_covers_is_named() -> None:
    taints = [TaintKey("soft", "", "PreferNoSchedule"), TAINT, TaintKey("b", "", "NoExecute")]

    assert untolerated(taints, []) == TAINT
    assert untolerated(taints, [Toleration(key="gpu", operator="Exists")]) == taints[2]
    assert untolerated(taints, [Toleration(operator="Exists")]) is None
    assert untolerated(taints, [], effects=("PreferNoSchedule",)) == taints[0]
