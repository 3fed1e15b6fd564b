"""What is counted of claims, and taken out again, leaves no trace."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.dra import Usage
from gangline.model.resource_claims import ResourceClaim

from .offers import allocated


def some_claim(random: Random) -> ResourceClaim:
    """A claim with devices of its own, shares, or the right to observe."""
    names = random.sample(["d0", "d1", "d2"], random.randint(1, 3))
    amount = random.choice(["10Gi", "1", "no quantity"])
    kinds: list[dict[str, Any]] = [
        {},
        {"adminAccess": True},
        {"shareID": "x"},
        {"shareID": "x", "consumedCapacity": {"m": amount}},
    ]
    return allocated(*names, **random.choice(kinds))


@given(st.randoms(use_true_random=False))
def test_what_is_taken_out_leaves_what_the_others_count(random: Random) -> None:
    claims = [some_claim(random) for _ in range(6)]
    usage = Usage(claims)
    gone = random.sample(range(6), 3)

    for number in gone:
        usage.remove(claims[number].status.results)

    fresh = Usage([claim for number, claim in enumerate(claims) if number not in gone])
    assert (usage.taken, usage.shared) == (fresh.taken, fresh.shared)
    assert usage.consumed.keys() == fresh.consumed.keys()
    for device, amounts in usage.consumed.items():
        assert {name: amount for name, amount in amounts.items() if amount} == fresh.consumed[device]
    for number, claim in enumerate(claims):
        if number not in gone:
            usage.remove(claim.status.results)
    assert not (usage.taken or usage.shared or usage.consumed)
