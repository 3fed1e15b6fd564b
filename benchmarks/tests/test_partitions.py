"""The benchmark of partitions: traces repeat, and what has room is served."""

from __future__ import annotations

import pytest

from partitions import POLICIES, PROFILES, arrivals, play

MIX = (20, 20, 20, 20, 20)


def test_a_seed_makes_the_same_trace_again_and_asks_for_the_load() -> None:
    trace = list(arrivals(7, 4000, 8, 0.5, MIX))

    assert trace == list(arrivals(7, 4000, 8, 0.5, MIX))
    assert trace != list(arrivals(8, 4000, 8, 0.5, MIX))
    asked = sum(PROFILES[each.profile] * each.stays for each in trace) / trace[-1].time
    assert asked == pytest.approx(0.5 * 7 * 8, rel=0.1)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_has_room_is_served(policy: str) -> None:
    trace = list(arrivals(1, 12, 8, 0.2, MIX))

    assert play(trace, 1, POLICIES[policy], 1).served.total() == len(trace)


def test_the_order_best_serves_more_than_the_first_devices() -> None:
    trace = list(arrivals(3, 120, 16, 0.95, (30, 10, 10, 40, 10)))

    first, best = (play(trace, 2, POLICIES[name], 1) for name in ("first node, first device", "best"))

    assert best.served.total() > first.served.total()
