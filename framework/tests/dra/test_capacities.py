"""How much of a capacity is consumed: requests, defaults, and what a policy allows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.dra.capacities import consumption
from gangline.model.resource_slices import DeviceCapacity
from gangline.quantity import milli

STEPS = {"default": "10Gi", "validRange": {"min": "10Gi", "max": "60Gi", "step": "5Gi"}}
VALUES = {"default": "10Gi", "validValues": ["10Gi", "20Gi", "40Gi"]}


@pytest.mark.parametrize(
    ("policy", "requested", "consumed"),
    [
        (None, None, "80Gi"),
        (None, "30Gi", "30Gi"),
        (None, "90Gi", None),
        (STEPS, None, "10Gi"),
        (STEPS, "1Gi", "10Gi"),
        (STEPS, "11Gi", "15Gi"),
        (STEPS, "15Gi", "15Gi"),
        (STEPS, "61Gi", None),
        (VALUES, None, "10Gi"),
        (VALUES, "11Gi", "20Gi"),
        (VALUES, "41Gi", None),
        ({"default": "10Gi"}, "3Gi", "3Gi"),
        ({"validRange": {"min": "10Gi"}}, "12Gi", "12Gi"),
    ],
)
def test_a_request_is_rounded_up_to_what_the_policy_allows(
    policy: dict[str, Any] | None, requested: str | None, consumed: str | None
) -> None:
    capacity = msgspec.convert({"value": "80Gi", **({"requestPolicy": policy} if policy else {})}, DeviceCapacity)

    found = consumption({"memory": capacity}, {"memory": requested} if requested else {})

    if consumed is None:
        assert found is None
    else:
        assert found is not None
        amount, has = found["memory"]
        assert amount.thousandths == milli(amount.text) == milli(consumed)
        assert has == milli("80Gi")


def test_a_capacity_that_the_device_does_not_have_cannot_be_consumed() -> None:
    assert consumption({}, {"memory": "1"}) is None


@pytest.mark.parametrize(
    ("least", "step", "requested", "text"),
    [
        ("10Gi", "5Gi", "11Gi", "15Gi"),
        ("1Gi", "512Mi", "1100Mi", "1536Mi"),
        ("1", "1", "4097", "4097"),
        ("1", "1", "1Ki", "1Ki"),
        ("500", "500", "501", "1k"),
        ("1", "1", "7", "7"),
        ("2Ei", "1Ei", "2Ei", "2Ei"),
    ],
)
def test_a_rounded_amount_is_written_as_the_api_server_writes_it(
    least: str, step: str, requested: str, text: str
) -> None:
    policy = {"validRange": {"min": least, "step": step}}
    capacity = msgspec.convert({"value": "4Ei", "requestPolicy": policy}, DeviceCapacity)

    found = consumption({"memory": capacity}, {"memory": requested})

    assert found is not None and found["memory"][0].text == text
