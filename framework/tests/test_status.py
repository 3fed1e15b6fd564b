"""Verdicts: codes from masks, and the worst of several."""

from __future__ import annotations

import numpy as np
import pytest

from gangline import SKIP, SUCCESS, Code, Reason, codes, unschedulable, wait
from gangline.status import Status, merge

ERROR = Status(Code.ERROR, ("broken",))
UNRESOLVABLE = unschedulable("never", resolvable=False)
UNSCHEDULABLE = unschedulable("full", "busy")
PENDING = Status(Code.PENDING)


def test_a_node_gets_the_number_of_its_first_condition() -> None:
    verdicts = codes(np.array([True, True, False, False]), np.array([True, False, True, False]))

    assert verdicts.tolist() == [1, 1, 2, 0] and verdicts.dtype == np.uint8


@pytest.mark.parametrize(
    ("given", "worst"),
    [
        ([], SUCCESS),
        ([SUCCESS, SKIP], SUCCESS),
        ([PENDING, UNSCHEDULABLE], UNSCHEDULABLE),
        ([UNSCHEDULABLE, UNRESOLVABLE], UNRESOLVABLE),
        ([UNRESOLVABLE, ERROR, PENDING], ERROR),
    ],
    ids=["nothing", "success", "unschedulable", "unresolvable", "error"],
)
def test_the_worst_verdict_counts(given: list[Status], worst: Status) -> None:
    assert merge(given) == worst


def test_a_fault_is_no_rejection_and_no_success() -> None:
    assert not ERROR.is_rejected and not ERROR.is_success
    assert all(status.is_rejected for status in (UNRESOLVABLE, UNSCHEDULABLE, PENDING))


def test_a_verdict_names_its_reasons_and_its_plugin() -> None:
    status = UNSCHEDULABLE.by("Fit")

    assert (status.message, status.plugin, status.code) == ("full, busy", "Fit", Code.UNSCHEDULABLE)
    assert wait(30).by("Gang").timeout == 30


def test_a_reason_says_whether_removing_pods_could_help() -> None:
    assert Reason("full").code is Code.UNSCHEDULABLE
    assert Reason("too small", resolvable=False).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
