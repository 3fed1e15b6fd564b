"""In which order each profile gives out devices."""

from __future__ import annotations

from gangline.dra.allocator import Order
from gangline_plugins.by_profile import ByProfile

__all__ = ["BEST", "UPSTREAM", "AllocationOrders", "Order"]

UPSTREAM: Order = "upstream"
BEST: Order = "best"


class AllocationOrders(ByProfile[Order]):
    """The orders of the profiles; a pod is given devices in the order of its own profile."""

    def __init__(self) -> None:
        super().__init__(UPSTREAM)
