"""How well an allocation meets the preferences of its claim: lists of alternatives, the best one first."""

from __future__ import annotations

from collections.abc import Iterable

from gangline import model

MOST_ALTERNATIVES = 8
"""Alternatives of one request; the API takes no more."""


def has_alternatives(claims: Iterable[model.ResourceClaim]) -> bool:
    """Whether a request of the claims lists alternatives."""
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests)


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
