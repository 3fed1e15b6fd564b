"""The four terms of a placement's score, each 0..1, and their weighted sum, 0..100.

- **resourceAvailability**: what stays available to whole-leaf gangs. 1 less the part of the leaves' GPUs that is left
  over, once the group runs, in leaves that nobody used before: 1 where no such leaf is broken up. For a group that one
  node holds it is the same of the node, if that is less.
- **topologyAlignment**: how compact it is. The fewest leaves that could do, divided by the number of positions from the
  first to the last leaf that is used, and by the number of spines: 1 on the fewest leaves, adjacent, in one spine.
- **domainUtilization**: the part of the leaves' GPUs that is in use once the group runs, so nearly full leaves are
  filled first. For a group that one node holds it is the mean of the node's part and the leaf's.
- **historicalPerformance**: the mean of the leaves' moving averages of placements that ran (1) or failed (0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline_plugins.leaf_spine.documents import ScoringWeights
from gangline_plugins.leaf_spine.layout import Ints

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """What is known of placements, one value for each."""

    total: Ints
    """What the leaves have."""
    used: Ints
    """What of it is in use."""
    untouched: Ints
    """What those of the leaves have that nobody uses."""
    span: Ints
    """Positions from the first to the last leaf, summed over spines."""
    spines: Ints
    history: Values
    node: Offers | None = None
    """For placements on one node: the same of the node alone."""


def resource_availability(offers: Offers, amount: int) -> Values:
    """See above; used leaves are taken to be filled first."""
    room_beside = (offers.total - offers.untouched) - offers.used
    left_over = offers.untouched - np.maximum(0, amount - room_beside)
    broken_up = np.clip(left_over, 0, None) * (offers.untouched > left_over)
    kept = 1.0 - _part(broken_up, offers.total)
    return kept if offers.node is None else np.minimum(kept, resource_availability(offers.node, amount))


def topology_alignment(offers: Offers, fewest: int) -> Values:
    """See above."""
    return np.minimum(1.0, fewest / np.maximum(1, offers.span * offers.spines))


def domain_utilization(offers: Offers, amount: int) -> Values:
    """See above."""
    part = np.minimum(1.0, _part(offers.used + amount, offers.total))
    return part if offers.node is None else (part + domain_utilization(offers.node, amount)) / 2


def score(offers: Offers, amount: int, fewest: int, weights: ScoringWeights) -> Values:
    """0..100."""
    terms = (
        resource_availability(offers, amount),
        topology_alignment(offers, fewest),
        domain_utilization(offers, amount),
        offers.history,
    )
    total = np.zeros(len(offers.total))
    for weight, term in zip(weights.values, terms, strict=True):
        total += weight * term
    return 100.0 * total


def _part(amount: Ints, total: Ints) -> Values:
    return amount / np.maximum(1, total)
