"""The devices that the allocations of claims have, counted.

Every use is a count, so an allocation that is removed leaves no trace, whatever was added or removed in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from gangline.errors import InvalidQuantity
from gangline.model.resource_claims import AllocatedDevice, ResourceClaim
from gangline.quantity import milli

K = TypeVar("K", bound=Hashable)
DeviceId = tuple[str, str, str]
"""Driver, pool and name of a device."""


class Usage:
    """The devices that claims have, and the amounts that they consume of devices that several claims may have."""

    __slots__ = ("_amounts", "closed", "consumed", "shared", "taken")

    def __init__(self, claims: Iterable[ResourceClaim] = ()) -> None:
        self.taken: dict[DeviceId, int] = {}
        """Devices that a claim has for itself, and how many claims say so: more than one only by a writer's fault."""
        self.shared: dict[DeviceId, int] = {}
        """Devices of which claims have shares, and the number of the shares."""
        self.closed: dict[DeviceId, int] = {}
        """Devices that somebody without a claim has, and how often they were closed. They consume no counters."""
        self.consumed: dict[DeviceId, dict[str, int]] = {}
        """By device: the thousandths of its capacities that the shares consume together."""
        self._amounts: dict[DeviceId, int] = {}
        """By device in `consumed`: the number of shares whose amounts are in it."""
        for claim in claims:
            self.add(claim.status.results)

    def add(self, results: Iterable[AllocatedDevice]) -> list[DeviceId]:
        """Count the devices of a claim; returns those that the claim uses.

        A claim that only observes a device (adminAccess) does not use it. A share whose consumed capacities cannot be
        read takes the whole device.
        """
        return self._count(results, 1)

    def remove(self, results: Iterable[AllocatedDevice]) -> list[DeviceId]:
        """Undo `add`."""
        return self._count(results, -1)

    def _count(self, results: Iterable[AllocatedDevice], sign: int) -> list[DeviceId]:
        devices = []
        for result in results:
            if result.admin_access:
                continue
            device = result.driver, result.pool, result.device
            devices.append(device)
            if result.share_id is None:
                _add(self.taken, device, sign)
                continue
            _add(self.shared, device, sign)
            if result.consumed_capacity is None:
                continue
            try:
                amounts = {name: milli(amount) for name, amount in result.consumed_capacity.items()}
            except InvalidQuantity:
                _add(self.taken, device, sign)
                continue
            consumed = self.consumed.setdefault(device, {})
            for name, amount in amounts.items():
                consumed[name] = consumed.get(name, 0) + sign * amount
            _add(self._amounts, device, sign)
            if device not in self._amounts:
                del self.consumed[device]
        return devices

    def close(self, device: DeviceId, sign: int) -> None:
        """Somebody without a claim has the device (`sign` is 1), or no longer has it (-1)."""
        _add(self.closed, device, sign)

    def is_used(self, device: DeviceId) -> bool:
        """Whether a claim has the device or a share of it."""
        return device in self.taken or device in self.shared


def _add(counts: dict[K, int], key: K, sign: int) -> None:
    count = counts.get(key, 0) + sign
    if count:
        counts[key] = count
    else:
        del counts[key]
