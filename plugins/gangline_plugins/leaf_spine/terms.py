"""The four terms of a placement's score, each from 0 to 1, and their weighted sum, from 0 to 100.

- **resourceAvailability**: how much stays available to gangs that need whole leaves. It is 1 less the fraction of the
  placement's GPUs that is left over in leaves that were unused before; 1 if no such leaf is broken up. For a group that
  one node holds, it is the lower of the values for the leaf and for the node.
- **topologyAlignment**: how compact the placement is. It is the fewest leaves that could hold the group, divided by the
  number of positions from the first to the last leaf used, and by the number of spines. It is 1 on the fewest leaves if
  they are adjacent and in one spine.
- **domainUtilization**: the fraction of the placement's GPUs that is in use once the group runs, so nearly full leaves
  are filled first. For a group that one node holds, it is the mean of the values for the leaf and for the node.
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
class DomainOffers:
    """The values from which placements are scored, one entry per placement."""

    total: Ints
    """The GPUs of the leaves."""
    used: Ints
    """The GPUs in use."""
    untouched: Ints
    """The GPUs of the leaves in which no GPU is in use."""
    span: Ints
    """Positions from the first to the last leaf, summed over the spines."""
    spines: Ints
    history: Values
    node: DomainOffers | None = None
    """For placements on one node: the same values for the node alone."""


def resource_availability(offers: DomainOffers, amount: int) -> Values:
    """The term resourceAvailability; the group is assumed to fill used leaves first."""
    room_beside = (offers.total - offers.untouched) - offers.used
    left_over = offers.untouched - np.maximum(0, amount - room_beside)
    broken_up = np.clip(left_over, 0, None) * (offers.untouched > left_over)
    kept = 1.0 - _part(broken_up, offers.total)
    return kept if offers.node is None else np.minimum(kept, resource_availability(offers.node, amount))


def topology_alignment(offers: DomainOffers, fewest: int) -> Values:
    """The term topologyAlignment."""
    return np.minimum(1.0, fewest / np.maximum(1, offers.span * offers.spines))


def domain_utilization(offers: DomainOffers, amount: int) -> Values:
    """The term domainUtilization."""
    part = np.minimum(1.0, _part(offers.used + amount, offers.total))
    return part if offers.node is None else (part + domain_utilization(offers.node, amount)) / 2


def score(offers: DomainOffers, amount: int, fewest: int, weights: ScoringWeights) -> Values:
    """The weighted sum of the terms, 0 to 100."""
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
