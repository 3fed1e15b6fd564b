"""How much of a device's capacities an allocation consumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gangline.model.base import Quantity
from gangline.model.resource_slices import CapacityRange, CapacityRequestPolicy, DeviceCapacity
from gangline.quantity import milli, whole


class Amount(NamedTuple):
    """A quantity: exact, and as it was written."""

    thousandths: int
    text: str


def amount(quantity: Quantity) -> Amount:
    """A quantity of the API. Raises InvalidQuantity."""
    return Amount(milli(quantity), str(quantity))


def check(capacity: DeviceCapacity) -> None:
    """Raise InvalidQuantity if a quantity of a capacity or of its policy cannot be read."""
    milli(capacity.value)
    policy = capacity.request_policy
    if policy is not None:
        valid = policy.valid_range or CapacityRange()
        for quantity in (policy.default, valid.min, valid.max, valid.step, *policy.valid_values):
            if quantity is not None:
                milli(quantity)


def consumption(
    capacities: Mapping[str, DeviceCapacity], requests: Mapping[str, Quantity]
) -> dict[str, tuple[Amount, int]] | None:
    """By capacity: the amount that an allocation consumes, and the thousandths that the device has.

    None if the device cannot give what `requests` ask for: a capacity that the device does not have, an amount that the
    policy of the capacity does not allow, or more than the device has. Raises InvalidQuantity.
    """
    if any(name not in capacities for name in requests):
        return None
    found: dict[str, tuple[Amount, int]] = {}
    for name, capacity in capacities.items():
        consumed = _consumed(requests.get(name), capacity)
        has = milli(capacity.value)
        if not _is_allowed(consumed.thousandths, capacity.request_policy) or consumed.thousandths > has:
            return None
        found[name] = consumed, has
    return found


def _consumed(requested: Quantity | None, capacity: DeviceCapacity) -> Amount:
    """The amount of one capacity that a request consumes: the request, rounded up to an amount that the policy has.

    Without a request the policy's default is consumed, and without a default the whole capacity.
    """
    policy = capacity.request_policy
    if requested is None:
        return amount(capacity.value if policy is None or policy.default is None else policy.default)
    wanted = amount(requested)
    if policy is None:
        return wanted
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded(wanted, policy.valid_range, amount(policy.valid_range.min))
    allowed = (amount(value) for value in policy.valid_values)
    return next((value for value in allowed if wanted.thousandths <= value.thousandths), wanted)


def _rounded(wanted: Amount, valid: CapacityRange, least: Amount) -> Amount:
    """The wanted amount, rounded up to the minimum of the range, `least`, or to a whole number of steps above it."""
    if wanted.thousandths < least.thousandths:
        return least
    step = _step(valid)
    if not step:
        return wanted
    start = whole(least.thousandths)
    units = start + -(-(whole(wanted.thousandths) - start) // step) * step
    return Amount(units * 1000, _binary(units))


def _binary(units: int) -> str:
    """An amount as the API server writes it in binary units: with the largest suffix that leaves a whole number."""
    if abs(units) < 1024:
        return f"{units // 1000}k" if units and not units % 1000 else str(units)
    for suffix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if units % 1024:
            return f"{units}{suffix}"
        units //= 1024
    return f"{units}Ei"


def _step(valid: CapacityRange) -> int:
    """The step of a range in whole units; 0 if it has none."""
    return max(0, whole(milli(valid.step))) if valid.step is not None else 0


def _is_allowed(consumed: int, policy: CapacityRequestPolicy | None) -> bool:
    """Whether the policy of a capacity allows an amount."""
    if policy is None or (policy.default is not None and consumed == milli(policy.default)):
        return True
    valid = policy.valid_range
    if valid is None:
        return not policy.valid_values or any(consumed == milli(value) for value in policy.valid_values)
    if valid.max is not None and consumed > milli(valid.max):
        return False
    step = _step(valid)
    least = whole(milli(valid.min)) if valid.min is not None else 0
    return not step or (whole(consumed) - least) % step == 0
