"""Metrics of allocations: how fast the devices of a pod are linked, and whether the claim's wish for links was met."""

from __future__ import annotations

from gangline import Handle
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.choosing import judge
from gangline_plugins.gpu.links import MOST_DEVICES, LinkClass
from gangline_plugins.gpu.wants import Want

_GIGA = 1e9
_BUCKETS = tuple(_GIGA * gbps for gbps in (16, 32, 64, 128, 200, 300, 600, 900, 1800, 3600))


class DecisionMetrics:
    """Counts reserved allocations."""

    def __init__(self, handle: Handle) -> None:
        self._bandwidth = handle.histogram(
            "gangline_allocation_bandwidth_bytes_per_second",
            "Bandwidth of the slowest link among the GPUs that a pod was given, of pods with several whole GPUs.",
            _BUCKETS,
        )
        self._wishes = handle.metric(
            "gangline_topology_wishes",
            "Claims for several whole GPUs that say how these are to be linked: met, or fallen back to other GPUs.",
            ("mode", "result"),
        )

    def count(self, want: Want, allocation: Allocation, links: LinkClass | None) -> None:
        """A pod with this want was given these devices."""
        ids = allocation.ids
        if links is None or len(ids) < 2 or ids[-1] >= MOST_DEVICES or allocation.exclusivity != "Exclusive":
            return
        gbps, is_met = judge(links, ids, want.rule)
        self._bandwidth.observe(gbps * _GIGA)
        if not want.implicit and want.rule.mode != "Ignore":
            self._wishes.labels(want.rule.mode, "met" if is_met else "fallen_back").inc()
