"""What is taken of the devices: what the allocations of claims say."""

from __future__ import annotations

from collections.abc import Iterable

from gangline.errors import InvalidQuantity
from gangline.model.resource_claims import ResourceClaim
from gangline.quantity import milli

DeviceId = tuple[str, str, str]
"""Driver, pool and name of a device."""


class Usage:
    """The devices that claims have, and what they consume of devices that several claims may have."""

    __slots__ = ("consumed", "shared", "taken")

    def __init__(self, claims: Iterable[ResourceClaim] = ()) -> None:
        self.taken: set[DeviceId] = set()
        """Devices of one claim alone."""
        self.shared: set[DeviceId] = set()
        """Devices of which claims have shares."""
        self.consumed: dict[DeviceId, dict[str, int]] = {}
        """By device: the thousandths of its capacities that the shares consume together."""
        for claim in claims:
            self.add(claim)

    def add(self, claim: ResourceClaim) -> None:
        """Count a claim; one that only observes a device takes nothing of it.

        A share of which it cannot be read what it consumes takes the whole device.
        """
        for result in claim.status.results:
            if result.admin_access:
                continue
            device = result.driver, result.pool, result.device
            if result.share_id is None:
                self.taken.add(device)
                continue
            self.shared.add(device)
            if result.consumed_capacity is None:
                continue
            try:
                amounts = {name: milli(amount) for name, amount in result.consumed_capacity.items()}
            except InvalidQuantity:
                self.taken.add(device)
                continue
            consumed = self.consumed.setdefault(device, {})
            for name, amount in amounts.items():
                consumed[name] = consumed.get(name, 0) + amount
