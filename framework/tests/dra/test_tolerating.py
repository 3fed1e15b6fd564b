"""Which taints of devices are tolerated, and for how long."""

from __future__ import annotations

import math

import pytest

from gangline.dra.tolerating import endured, tolerates
from gangline.model.resource_claims import DeviceToleration
from gangline.model.resource_slices import DeviceTaint

BROKEN = DeviceTaint("example.com/broken", "NoExecute", "yes")
FOR_EVER = DeviceToleration("example.com/broken", "Exists")
SOON = DeviceToleration("example.com/broken", "Equal", "yes", "NoExecute", 30)
LATER = DeviceToleration("", "Exists", toleration_seconds=300)
NEGATIVE = DeviceToleration("", "Exists", toleration_seconds=-5)
OTHER = DeviceToleration("example.com/hot", "Exists")


@pytest.mark.parametrize(
    ("toleration", "accepts"),
    [
        (DeviceToleration("example.com/broken", "", "yes"), True),
        (DeviceToleration("example.com/broken", "Equal", "no"), False),
        (DeviceToleration("example.com/broken", "Exists", effect="NoSchedule"), False),
        (DeviceToleration("example.com/broken", "Unknown", "yes"), False),
        (FOR_EVER, True),
        (LATER, True),
        (OTHER, False),
    ],
)
def test_a_toleration_accepts_a_taint_of_its_key_value_and_effect(toleration: DeviceToleration, accepts: bool) -> None:
    assert tolerates(toleration, BROKEN) is accepts


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0.0),
        ([OTHER], 0.0),
        ([FOR_EVER], math.inf),
        ([SOON], 30.0),
        ([LATER, SOON], 30.0),
        ([SOON, FOR_EVER], math.inf),
        ([NEGATIVE], 0.0),
    ],
)
def test_the_fewest_seconds_count_unless_a_toleration_has_none(
    tolerations: list[DeviceToleration], seconds: float
) -> None:
    assert endured(BROKEN, tolerations) == seconds
