"""In which order each profile gives out devices."""

from __future__ import annotations

from gangline import State
from gangline.dra.allocator import Order

__all__ = ["BEST", "UPSTREAM", "AllocationOrders", "Order"]

UPSTREAM: Order = "upstream"
BEST: Order = "best"


class AllocationOrders:
    """The orders of the profiles; a pod is given devices in the order of its own profile."""

    def __init__(self) -> None:
        self._orders: dict[str, list[Order]] = {}
        """The orders of each profile, one for each of its configurations; the last one is in use, or is about to be."""

    def add(self, profile: str, order: Order, state: State) -> None:
        """Add a profile until the configuration of its plugin ends."""
        said = self._orders.setdefault(profile, [])
        said.append(order)
        state.at_end(lambda: said.remove(order))

    def of(self, profile: str) -> Order:
        """The order of a profile."""
        said = self._orders.get(profile)
        return said[-1] if said else UPSTREAM
