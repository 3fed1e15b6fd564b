"""How well an allocation meets the preferences of its claim: lists of alternatives, the best one first."""

from __future__ import annotations

from collections.abc import Iterable, Set

from gangline import ScoreColumn, model
from gangline.dra.weighing import Chosen

MOST_ALTERNATIVES = 8
"""Alternatives of one request; the API takes no more."""


def has_alternatives(claims: Iterable[model.ResourceClaim]) -> bool:
    """Whether a request of the claims lists alternatives."""
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests)


def most(claims: Iterable[model.ResourceClaim]) -> int:
    """The highest sum of `preference` that these claims could have."""
    requests = [request for claim in claims for request in claim.spec.devices.requests if request.first_available]
    return MOST_ALTERNATIVES * len(requests)


def thrift(losses: ScoreColumn) -> ScoreColumn:
    """1 for a loss of 0, and lower for higher losses, but always above 0."""
    found: ScoreColumn = 1.0 / (1.0 + losses)
    return found


def preference(claim: model.ResourceClaim, allocation: model.ResourceClaimAllocation) -> float:
    """The sum over requests with alternatives: the earlier in its list the allocated alternative stands, the more."""
    return _preference(claim, {each.request for each in allocation.devices.results})


def preferences(claims: Iterable[model.ResourceClaim], chosen: Chosen) -> float:
    """The sum of `preference` over claims, each of which gets its alternatives among these."""
    return sum(_preference(claim, {name for of, name in chosen if of == number}) for number, claim in enumerate(claims))


def _preference(claim: model.ResourceClaim, chosen: Set[str]) -> float:
    total = 0.0
    for request in claim.spec.devices.requests:
        for place, alternative in enumerate(request.first_available[:MOST_ALTERNATIVES]):
            if f"{request.name}/{alternative.name}" in chosen:
                total += MOST_ALTERNATIVES - place
                break
    return total
