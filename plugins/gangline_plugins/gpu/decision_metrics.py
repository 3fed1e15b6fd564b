"""Metrics of allocations: how fast the devices of a pod are linked, and whether the claim's wish for links was met."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gangline import Handle
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.choosing import judge
from gangline_plugins.gpu.links import MOST_DEVICES, LinkClass
from gangline_plugins.gpu.wants import Want

_GIGA = 1e9
_JUDGED = 1024
"""Answers that are kept: the members of a gang have mostly the same devices of like nodes."""
_BUCKETS = tuple(_GIGA * gbps for gbps in (16, 32, 64, 128, 200, 300, 600, 900, 1800, 3600))


class DecisionMetrics:
    """Counts reserved allocations."""

    def __init__(self, handle: Handle) -> None:
        self._judge = lru_cache(maxsize=_JUDGED)(judge)
        self._bandwidth = handle.distribution(
            "gangline_allocation_bandwidth_bytes_per_second",
            "Bandwidth of the slowest link among the GPUs that a pod was given, of pods with several whole GPUs.",
            _BUCKETS,
        )
        self._wishes = handle.metric(
            "gangline_topology_wishes",
            "Claims for several whole GPUs that say how these are to be linked: met, or fallen back to other GPUs.",
            ("mode", "result"),
        )

    def count(self, want: Want, allocation: Allocation, links: LinkClass | None, number: int = 1) -> None:
        """So many pods with this want were given these devices, of nodes with these links."""
        ids = allocation.ids
        if links is None or len(ids) < 2 or ids[-1] >= MOST_DEVICES or allocation.exclusivity != "Exclusive":
            return
        gbps, is_met = self._judge(links, ids, want.rule)
        self._bandwidth.observe(gbps * _GIGA, number)
        if not want.implicit and want.rule.mode != "Ignore":
            self._wishes.labels(want.rule.mode, "met" if is_met else "fallen_back").inc(number)

    def count_all(self, wants: Sequence[Want], given: Sequence[tuple[Allocation, LinkClass | None]]) -> None:
        """As `count` for each pod. Members of a gang mostly want the same, and get the same devices of like nodes."""
        if not given:
            return
        first, begin = (wants[0], *given[0]), 0
        for number, (want, (allocation, links)) in enumerate(zip(wants, given, strict=True)):
            is_alike = want is first[0] and links is first[2] and allocation.ids == first[1].ids
            if is_alike and allocation.exclusivity == first[1].exclusivity:
                continue
            self.count(*first, number - begin)
            first, begin = (want, allocation, links), number
        self.count(*first, len(given) - begin)
