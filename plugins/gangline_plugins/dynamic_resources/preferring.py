"""How well an allocation meets the preferences of its claim: lists of alternatives, the best one first."""

from __future__ import annotations

from collections.abc import Iterable

from gangline import ScoreColumn, model

MOST_ALTERNATIVES = 8
"""Alternatives of one request; the API takes no more."""


def has_alternatives(claims: Iterable[model.ResourceClaim]) -> bool:
    """Whether a request of the claims lists alternatives."""
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests)


def most(claims: Iterable[model.ResourceClaim]) -> int:
    """The best that `preference` can say of the claims together."""
    requests = [request for claim in claims for request in claim.spec.devices.requests if request.first_available]
    return MOST_ALTERNATIVES * len(requests)


def thrift(losses: ScoreColumn) -> ScoreColumn:
    """1 where nothing is lost, and less the more is; above 0."""
    found: ScoreColumn = 1.0 / (1.0 + losses)
    return found


def preference(claim: model.ResourceClaim, allocation: model.ResourceClaimAllocation) -> float:
    """For each request with alternatives, more the earlier the alternative stands that was allocated; the sum."""
    chosen = {each.request for each in allocation.devices.results}
    total = 0.0
    for request in claim.spec.devices.requests:
        for place, alternative in enumerate(request.first_available[:MOST_ALTERNATIVES]):
            if f"{request.name}/{alternative.name}" in chosen:
                total += MOST_ALTERNATIVES - place
                break
    return total


def preferences(claims: Iterable[model.ResourceClaim], allocations: Iterable[model.ResourceClaimAllocation]) -> float:
    """The sum of `preference` over claims and what each of them has."""
    return sum(preference(claim, each) for claim, each in zip(claims, allocations, strict=True))


def chosen(allocations: Iterable[model.ResourceClaimAllocation]) -> frozenset[tuple[int, str]]:
    """Which requests and alternatives have devices: the number of the claim, and the name."""
    return frozenset(
        (number, result.request) for number, each in enumerate(allocations) for result in each.devices.results
    )
