"""The first reading of slices and devices: whether they can be used, and the traits of each device."""

from __future__ import annotations

from gangline.bounds import check_count
from gangline.dra import capacities
from gangline.model.resource_slices import Device, ResourceSlice
from gangline.quantity import milli

SHAREABLE = 1
"""A trait: several allocations may have the device at once."""
CONSUMES = 2
"""A trait: the device consumes counters."""
TAINTED = 4
"""A trait: the device has a taint that keeps pods away."""
HAS_POLICY = 8
"""A trait: a capacity of the device has a policy for the amounts that may be consumed."""
_BLOCKING = frozenset(("NoSchedule", "NoExecute"))
_MOST_DEVICES = 128
"""Devices of one slice; the API takes no more."""
_MOST_COUNTER_SETS = 8


def check(each: ResourceSlice) -> None:
    """Raise InvalidObject for a slice that is too large, or that has a quantity that cannot be read."""
    check_count("spec.devices", each.spec.devices, _MOST_DEVICES)
    check_count("spec.sharedCounters", each.spec.shared_counters, _MOST_COUNTER_SETS)
    for device in each.spec.devices:
        for capacity in device.capacity.values():
            capacities.check(capacity)
        for consumed in device.consumes_counters:
            for counter in consumed.counters.values():
                milli(counter.value)
    for counters in each.spec.shared_counters:
        for counter in counters.counters.values():
            milli(counter.value)


def is_blocking(effect: str) -> bool:
    """Whether a taint of this effect keeps pods away."""
    return effect in _BLOCKING


def traits_of(device: Device) -> int:
    """The traits of a device."""
    found = SHAREABLE if device.allow_multiple_allocations else 0
    if device.consumes_counters:
        found |= CONSUMES
    for taint in device.taints:
        if taint.effect in _BLOCKING:
            found |= TAINTED
    for capacity in device.capacity.values():
        if capacity.request_policy is not None:
            found |= HAS_POLICY
    return found


def consumption(device: Device) -> dict[tuple[str, str], int]:
    """By names of counter set and counter: the thousandths that a device consumes."""
    consumed: dict[tuple[str, str], int] = {}
    for each in device.consumes_counters:
        for name, counter in each.counters.items():
            key = each.counter_set, name
            consumed[key] = consumed.get(key, 0) + milli(counter.value)
    return consumed
